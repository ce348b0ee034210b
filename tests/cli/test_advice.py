"""What `show`, `pending` and the page say to run next, for agents, threads and code of one's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

import holdfast
from holdfast import Agent
from holdfast.agents import ScriptedModel, Thread
from tests.agent.scripted_agents import World, call, make_tools
from tests.cli.cli_processes import Done

STORE = "sqlite:agents.db"
Run = Callable[[str], Done]
T = TypeVar("T")


@pytest.fixture
def run(call_here: Callable[[Path, str], Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in a directory of its own, on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda line: call_here(tmp_path, f"{line} --store {STORE}")


def list_advice(run: Run, session: str) -> list[str]:
    """What continues a session: as `show`, `pending` and the page say it."""
    shown = run(f"show {session}").out.splitlines()[-1]
    assert shown.startswith("next: ")
    (waiting,) = run(f"pending {session} --json").json["pending"]
    assert run(f"show {session} --html {session}.html").code == 0
    page = unescape(Path(f"{session}.html").read_text())
    box = page.partition('<section class="box needs">')[2].partition("</section>")[0]
    return [shown.removeprefix("next: "), waiting["then"], box]


def assert_advises(run: Run, session: str, expected: str) -> None:
    """That all three say it, and nothing else."""
    shown, waiting, box = list_advice(run, session)
    assert (shown, waiting) == (expected, expected)
    assert expected in box
    assert ("holdfast resume " in box) == ("holdfast resume " in expected)


def drive(work: Callable[[], Awaitable[T]]) -> T:
    """What a program does between the commands, which have an event loop of their own."""
    return anyio.run(work)


def test_a_thread_is_resumed_by_the_call_of_the_thread(run: Run, tmp_path: Path) -> None:
    """Its runs have agents of ours inside. The call that is printed goes on."""
    world = World()
    script: list[Any] = [call("fire", what="Bob"), "He is gone."]
    member = Agent(ScriptedModel(script), name="member", tools=make_tools(world))
    thread = Thread([member], name="board", max_iterations=1)
    url = f"sqlite:{tmp_path}/agents.db"
    assert drive(lambda: thread.run("Discuss Bob", session="s", store=url)).status == "waiting"
    expected = f"thread.resume('s', store={STORE!r}), of the Thread 'board'"
    assert_advises(run, "s", expected)
    assert run("approve s c-fire").code == 0
    said = expected.partition(", of the Thread")[0]
    # The working directory is that of the commands.
    outcome: Any = drive(lambda: eval(said, {"thread": thread}))
    assert (outcome.status, world.done) == ("completed", ["fire Bob"])


def test_an_agent_is_resumed_by_the_command_unless_it_runs_in_a_run_of_ones_own(
    run: Run, tmp_path: Path
) -> None:
    """Also one without a name."""
    url = f"sqlite:{tmp_path}/agents.db"
    script: list[Any] = [call("fire", what="Bob"), "Done."]

    def make_agent() -> Agent[Any, Any]:
        return Agent(ScriptedModel(script), tools=make_tools(World()))

    assert drive(lambda: make_agent().run("Fire Bob", session="alone", store=url)).status == "waiting"
    assert_advises(
        run, "alone", f"holdfast resume FILE.py alone --store {STORE}, where FILE.py has the agent"
    )

    async def run_inside() -> None:
        async with holdfast.open_store(url) as store, store.session("inside") as session:
            async with session.run(agent="mine", model="pretend", config={"a": 1}) as outer:
                assert (await make_agent().run("Fire Bob", session=session)).status == "waiting"
                outer.pause("approval")

    drive(run_inside)
    assert_advises(run, "inside", f"your program again: it goes on in session 'inside' of {STORE}")

"""A real agent is killed at every kind of moment, and goes on in a new process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.cli import main
from tests.crash.fork_server import Warm

from .agents import WAYS, Way
from .killed_agents import KILLS, play, play_stock

HAPPENS = Counter(["pay a", "post a", "refund a", "model 0", "model 1", "model 2"])
SAID = [
    ["human", "go", None],
    ["ai", "", None],
    ["tool", "paid a", "pay"],
    ["tool", "a is there", "look"],
    ["tool", "posted a", "post"],
    ["ai", "", None],
    ["tool", "refunded a", "refund"],
    ["ai", "all done", None],
]


@pytest.mark.parametrize("kill", KILLS)
def test_an_agent_that_is_killed_ends_as_if_nothing_had_happened(
    loaded_warm: Warm, quick_path: Path, kill: str
) -> None:
    """Every effect once, every reply asked for once, and the same said in the end."""
    with loaded_warm.child(play, str(quick_path), kill) as child:
        assert child.outcome() is None, "it was not killed"
    found = loaded_warm.call(play, str(quick_path))
    assert found["said"] == SAID
    assert Counter(found["world"]) == HAPPENS


def test_what_to_run_next_is_a_call_of_the_agent(
    loaded_warm: Warm, quick_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`create_agent` gives its users an `agent`, and no graph: in `show`, in `pending`, and of a copy."""
    with loaded_warm.child(play, str(quick_path), KILLS[0]) as child:
        assert child.outcome() is None, "it was not killed"
    monkeypatch.chdir(quick_path)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:store.db")
    with HoldfastSaver.from_url("sqlite:store.db") as saver:
        saver.copy_thread("t", "copy")
    for thread in ("t", "copy"):
        config = f"{{'configurable': {{'thread_id': {thread!r}}}}}"
        expected = f"agent.invoke(None, {config}), with HoldfastSaver.from_url('sqlite:store.db') as its"
        assert main(["show", thread]) == 0
        shown = capsys.readouterr().out.splitlines()[-1]
        assert shown.startswith(f"next: {expected}")
        assert main(["pending", thread, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["pending"]
        assert found
        assert all(one["then"].startswith(expected) for one in found)


def test_a_tool_that_another_node_has_sent_a_call_to_has_its_name(
    loaded_warm: Warm, quick_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`create_agent` sends each call to the node `tools`: it is the node of the checkpoint after it, also of
    the one after the kill, and of its bars on the page."""
    with loaded_warm.child(play, str(quick_path), KILLS[0]) as child:
        assert child.outcome() is None, "it was not killed"
    loaded_warm.call(play, str(quick_path))
    monkeypatch.chdir(quick_path)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:store.db")
    assert main(["show", "t", "--json"]) == 0
    (namespace,) = json.loads(capsys.readouterr().out)["namespaces"]
    nodes = [one["nodes"] for one in namespace["checkpoints"]]
    assert nodes == [[], [], ["model"], ["tools"], ["model"], ["tools"], ["model"]]
    assert main(["show", "t", "--html", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "a task" not in page
    assert ">tools<" in page


@pytest.mark.parametrize("ways", [WAYS, WAYS[::-1]], ids=["sync-first", "async-first"])
def test_an_agent_goes_on_with_an_event_loop_or_without_one(
    loaded_warm: Warm, quick_path: Path, ways: tuple[Way, Way]
) -> None:
    """Killed the one way, it goes on the other."""
    before, after = ways
    with loaded_warm.child(play, str(quick_path), KILLS[0], way=before) as child:
        assert child.outcome() is None, "it was not killed"
    assert Counter(loaded_warm.call(play, str(quick_path), way=after)["world"]) == HAPPENS


def test_without_the_middleware_it_pays_twice(loaded_warm: Warm, quick_path: Path) -> None:
    """The same agent as it comes, with the same saver: LangGraph runs the tool again."""
    with loaded_warm.child(play_stock, str(quick_path), kill=True) as child:
        assert child.outcome() is None, "it was not killed"
    assert loaded_warm.call(play_stock, str(quick_path)) == ["pay a stock", "pay a stock"]

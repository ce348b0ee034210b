"""Agents without an event loop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import pytest

import holdfast
from holdfast import Budget, ToolContext, blocking
from holdfast.agents import Outcome, Prompt, Reply, ScriptedModel, TextDelta
from holdfast.drivers.contract import Driver
from holdfast.errors import BadInput
from holdfast.messages import Message, Text, ToolCall
from tests.interrupts import one_interrupt

Line = str | ToolCall


@holdfast.tool(side_effects={"mutate"})
def pay(ctx: ToolContext[list[int]], cents: int) -> str:
    """Pay."""
    ctx.deps.append(cents)
    return "paid"


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
async def fire(who: str) -> str:
    """Fire somebody."""
    return f"{who} is fired"


def call(name: str, **args: object) -> ToolCall:
    return ToolCall(id="call_0", name=name, args=args)


def make(script: Sequence[Line]) -> blocking.Agent[list[int], str]:
    return blocking.Agent(ScriptedModel(script), name="clerk", tools=[pay, fire])


def test_an_agent_runs_and_gives_its_outcome_again(store_url: str | Driver) -> None:
    """With sync and async tools; `deps` reach them."""
    agent, paid = make([call("pay", cents=5), "It is paid."]), [0]
    with blocking.open_store(store_url) as store:
        outcome = agent.run("Pay.", session="s", store=store, deps=paid)
        assert (outcome.status, outcome.output) == ("completed", "It is paid.")
        assert agent.resume("s", store=store) == outcome
    assert paid == [0, 5]


def test_a_store_given_as_deps_reaches_tools_as_it_is(store_url: str | Driver) -> None:
    """Also a closed one, and one beside the store that the agent works on."""
    seen: list[object] = []

    @holdfast.tool(side_effects={"mutate"})
    def notify(ctx: ToolContext[blocking.Store], text: str) -> str:
        """Send it."""
        seen.append(ctx.deps)
        return "sent"

    agent = blocking.Agent(ScriptedModel([call("notify", text="a"), "Done."]), tools=[notify])
    with blocking.open_store("memory:") as closed:
        pass
    with blocking.open_store(store_url) as store:
        for number, deps in enumerate((store, closed)):
            assert agent.run("Go.", session=f"s{number}", store=store, deps=deps).status == "completed"
            assert seen[-1] is deps


def test_a_person_answers_and_the_agent_goes_on(store_url: str | Driver) -> None:
    agent = make([call("fire", who="Bob"), "Done."])
    with blocking.open_store(store_url) as store:
        (question,) = agent.run("Fire Bob.", session="s", store=store).waiting
        store.refuse(question.session, question.call, by="ann", reason="he is the boss")
        assert agent.resume("s", store=store).output == "Done."


def test_events_come_one_by_one_and_the_outcome_last(store_url: str | Driver) -> None:
    agent = make(["One two."])
    with blocking.open_store(store_url) as store:
        *events, last = agent.stream("Count.", session="s", store=store)
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["One ", "two."]
        assert isinstance(last, Outcome)
        assert last.output == "One two."
        assert list(agent.stream(session="s", store=store)) == [last]


class Stalling:
    """Says half a sentence and stalls, the first time."""

    name = "stalling"

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Reply, None]:
        self.asked += 1
        yield TextDelta("One ")
        if self.asked == 1:
            await anyio.sleep_forever()
        yield Reply(message=Message(role="assistant", blocks=(Text("One two."),)))


def test_closing_a_stream_cancels_the_run(store_url: str | Driver) -> None:
    """And it can be taken up again."""
    agent = blocking.Agent(Stalling())
    with blocking.open_store(store_url) as store:
        events = agent.stream("Count.", session="s", store=store)
        assert next(events) == TextDelta("One ")
        events.close()
        assert [run.status for run in store.runs(session="s")] == ["cancelled"]
        assert agent.resume("s", store=store).output == "One two."


def test_an_agent_drives_a_session_that_is_open(store_url: str | Driver) -> None:
    agent = make(["Hello.", "Good bye."])
    with blocking.open_store(store_url) as store, store.session("s") as session:
        assert agent.run("Hi.", session=session).output == "Hello."
        assert agent.run("Bye.", session=session).output == "Good bye."
        session.compact("They greeted each other.", keep=1)
        assert [one.text for one in session.transcript] == ["They greeted each other.", "Good bye."]


def test_without_a_store_the_environment_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:{tmp_path}/agents.db")
    agent = make(["Hello."])
    outcome = agent.run("Hi.", session="s")
    assert agent.resume("s") == outcome
    assert list(agent.stream(session="s")) == [outcome]


def test_an_agent_hands_work_to_another(store_url: str | Driver) -> None:
    """A delegate is made here as there, and works for either."""
    lead = blocking.Agent(
        ScriptedModel([call("clerk", task="Pay 5."), "All is paid."]),
        tools=[make([call("pay", cents=5), "It is paid."]).as_tool()],
        budget=Budget(tokens=100_000),
    )
    paid: list[int] = []
    with blocking.open_store(store_url) as store:
        assert lead.run("Pay.", session="s", store=store, deps=paid).output == "All is paid."
        assert [head.status for head in store.sessions(parent="s")] == ["completed"]
    assert paid == [5]


def test_everything_that_was_interrupted_is_taken_up(tmp_path: Path) -> None:
    """By a process that finds what another one left; here, a child that is killed while it asks."""
    url = f"sqlite:{tmp_path}/agents.db"
    child = os.fork()
    if child == 0:
        try:
            # With a cap, what was begun is durable before the model is asked.
            die = blocking.Agent(ScriptedModel(_die), name="clerk", budget=Budget(steps=9))
            with blocking.open_store(url) as store:
                die.run("Count.", session="s", store=store)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    agent = make(["One two."])
    with blocking.open_store(url) as store:
        assert [one.output for one in agent.resume_all(store)] == ["One two."]
        assert agent.resume_all(store) == []


def test_what_is_no_store_is_refused() -> None:
    """The error says what can be given."""
    with pytest.raises(BadInput, match=r"pass a URL .*blocking\.open_store"):
        make(["Hello."]).run("Hi", session="s", store=5)  # type: ignore[arg-type]


def _die(prompt: Prompt) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@pytest.mark.parametrize("streaming", [False, True])
def test_ctrl_c_stops_an_agent_and_the_record_says_so(store_url: str | Driver, streaming: bool) -> None:
    """The run is cancelled and the session given back before the interrupt goes on."""
    asked = threading.Event()

    def slow(prompt: Prompt) -> str:
        if not asked.is_set():
            asked.set()
            raise holdfast.errors.ModelError("come back later", retryable=True, retry_after_s=100)
        return "Here you are."

    def drive(agent: blocking.Agent, store: blocking.Store, *, streaming: bool) -> None:
        with one_interrupt() as press:
            threading.Thread(target=lambda: asked.wait(300) and press()).start()
            if streaming:
                list(agent.stream("Hi.", session="s", store=store))
            else:
                agent.run("Hi.", session="s", store=store)

    agent = blocking.Agent(ScriptedModel(slow))
    with blocking.open_store(store_url) as store:
        with pytest.raises(KeyboardInterrupt):
            drive(agent, store, streaming=streaming)
        assert [run.status for run in store.runs(session="s")] == ["cancelled"]
        assert agent.resume("s", store=store).output == "Here you are."

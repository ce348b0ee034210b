"""A message with a key is answered once, however often it is sent, and wherever its process dies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast
from holdfast import ToolContext, blocking, open_store
from holdfast.agents import Compaction, Outcome, Prompt, ScriptedModel
from holdfast.agents.model import ModelEvent
from holdfast.errors import BadInput, KeyReused, LeaseHeld, ModelError, NotFound
from holdfast.messages import Message, Text, ToolCall
from tests.agent.scripted_agents import Counting, World, call, fresh_store, make, texts
from tests.crash import faults
from tests.crash.fork_server import Line, Warm


async def statuses(store: holdfast.Store, session: str = "s") -> list[str]:
    return [run.status async for run in store.runs(session=session)]


async def test_the_same_key_gives_the_same_outcome_and_asks_nothing() -> None:
    """The second request is neither added nor answered again."""
    model = Counting(["One.", "Two."])
    agent = make(model)
    async with fresh_store() as store:
        first = await agent.run("Hello", session="s", store=store, key="a")
        assert await agent.run("Hello", session="s", store=store, key="a") == first
        assert first.output == "One."
        second = await agent.run("Hello", session="s", store=store, key="b")
        assert second.output == "Two."
        assert await agent.run("Hello", session="s", store=store, key="b") == second
        assert len(model.prompts) == 2
        assert await texts(store, "s") == ["user: Hello", "assistant: One.", "user: Hello", "assistant: Two."]
        assert await statuses(store) == ["completed", "completed"]


async def test_an_earlier_outcome_is_read_from_the_record() -> None:
    """Also its usage, and when later runs, a compaction and a rewind have changed the transcript."""

    def shorten(session: holdfast.Session) -> Compaction | None:
        return Compaction(message="In short.", keep=1) if len(session.transcript) > 2 else None

    agent = make(ScriptedModel(lambda prompt: f"To {prompt.messages[-1].text}."), compact=shorten)
    async with fresh_store() as store:
        outcomes = [
            await agent.run(f"Question {key}", session="s", store=store, key=key) for key in ("a", "b", "c")
        ]
        assert [outcome.output for outcome in outcomes] == [f"To Question {key}." for key in ("a", "b", "c")]
        assert len({outcome.usage.tokens for outcome in outcomes}) == 3
        again = [
            await agent.run(f"Question {key}", session="s", store=store, key=key) for key in ("a", "b", "c")
        ]
        assert again == outcomes
        async with store.session("s") as session:
            await session.rewind(version=1)
        assert await agent.run("Question c", session="s", store=store, key="c") == outcomes[2]
        assert await agent.run("Question a", session="s", store=store, key="a") == outcomes[0]


@dataclass
class City:
    name: str


async def test_a_typed_output_is_given_again() -> None:
    """It is read from the call with which the model gave it, also when it is not the last one."""
    cities = [ToolCall(id="c", name="final_result", args={"name": name}) for name in ("Lyon", "Nice")]
    agent: Any = make(cities, output_type=City)
    async with fresh_store() as store:
        first = await agent.run("Which?", session="s", store=store, key="a")
        await agent.run("And next?", session="s", store=store, key="b")
        again = await agent.run("Which?", session="s", store=store, key="a")
        assert again == first
        assert again.output == City("Lyon")
        with pytest.raises(NotFound, match="another type"):
            await make([], output_type=int).run("Which?", session="s", store=store, key="a")


async def test_another_message_with_the_same_key_is_refused() -> None:
    """It would be lost, or answered with what was said to the other one."""
    agent = make(["One.", "Two."])
    async with fresh_store() as store:
        outcome = await agent.run("Hello", session="s", store=store, key="a")
        with pytest.raises(KeyReused, match="key 'a' was used in session 's' before") as refused:
            await agent.run("Good-bye", session="s", store=store, key="a")
        assert (refused.value.key, refused.value.session) == ("a", "s")
        same = Message(role="user", blocks=(Text("Hello"),), id="attempt-2")
        assert await agent.run(same, session="s", store=store, key="a") == outcome
        assert (await agent.run("Good-bye", session="t", store=store, key="a")).output == "One."


async def test_a_key_needs_a_message_and_a_session() -> None:
    """Without them, there is nothing to look up."""
    agent = make(["One."])
    async with fresh_store() as store:
        with pytest.raises(BadInput, match="with a message and session="):
            await agent.run("Hello", store=store, key="a")
        with pytest.raises(BadInput, match="with a message and session="):
            async for _ in agent.stream(session="s", store=store, key="a"):
                pass
        with pytest.raises(BadInput, match="a key is text of 1 to 200 characters"):
            await agent.run("Hello", session="s", store=store, key="")


async def test_a_failure_is_an_outcome_until_it_is_resumed() -> None:
    """The same request gets the failure again; when the work was resumed, it gets the result."""
    agent = make([call("look", what="it"), "Done."], max_steps=1)
    async with fresh_store() as store:
        failed = await agent.run("Go", session="s", store=store, key="a")
        assert (failed.status, failed.reason) == ("failed", "step_limit")
        assert failed.error
        assert await agent.run("Go", session="s", store=store, key="a") == failed
        resumed = await agent.resume("s", store=store)
        assert resumed.status == "completed"
        assert await agent.run("Go", session="s", store=store, key="a") == resumed


async def test_a_failure_stays_the_outcome_when_another_message_follows() -> None:
    """What the next message got is not what the first one got."""
    agent = make([call("look", what="it"), "Done."], max_steps=1)
    async with fresh_store() as store:
        failed = await agent.run("Go", session="s", store=store, key="a")
        other = await agent.run("Well?", session="s", store=store, key="b")
        assert other.status == "completed"
        assert await agent.run("Go", session="s", store=store, key="a") == failed
        assert await agent.run("Well?", session="s", store=store, key="b") == other


async def test_an_exception_is_no_outcome() -> None:
    """The caller got none, so the same request goes on with the work."""

    class Broken(ScriptedModel):
        broken = True

        async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
            if self.broken:
                raise ZeroDivisionError("a bug")
            async for said in super().ask(prompt):
                yield said

    model = Broken(["Done."])
    agent = make(model)
    async with fresh_store() as store:
        with pytest.raises(ZeroDivisionError):
            await agent.run("Go", session="s", store=store, key="a")
        model.broken = False
        outcome = await agent.run("Go", session="s", store=store, key="a")
        assert outcome.output == "Done."
        assert await texts(store, "s") == ["user: Go", "assistant: Done."]
        assert await statuses(store) == ["failed", "completed"]


async def test_a_model_that_gives_no_reply_is_an_outcome() -> None:
    """`resume` tries again."""

    def answer(prompt: Prompt) -> str:
        raise ModelError("it is asleep")

    agent = make(ScriptedModel(answer))
    async with fresh_store() as store:
        failed = await agent.run("Go", session="s", store=store, key="a")
        assert failed.reason == "model_error"
        assert await agent.run("Go", session="s", store=store, key="a") == failed
        assert "asleep" in failed.error


async def test_a_request_that_was_cancelled_by_its_caller_goes_on() -> None:
    """A client that hangs up and tries again wants the answer; a cancellation that was asked for stays."""
    asked = anyio.Event()

    class Slow(ScriptedModel):
        is_slow = True

        async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
            asked.set()
            if self.is_slow:
                await anyio.sleep_forever()
            async for said in super().ask(prompt):
                yield said

    model = Slow(["Done."])
    agent = make(model)
    async with fresh_store() as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.run("Go", session="s", store=store, key="a"))
            await asked.wait()
            with pytest.raises(LeaseHeld):
                await agent.run("Go", session="s", store=store, key="a")
            tasks.cancel_scope.cancel()
        model.is_slow = False
        assert (await agent.run("Go", session="s", store=store, key="a")).output == "Done."
        assert await texts(store, "s") == ["user: Go", "assistant: Done."]


async def test_a_cancellation_that_was_asked_for_is_an_outcome() -> None:
    """It was told so; `resume` goes on all the same."""

    @holdfast.tool(side_effects={"read"})
    async def stop(ctx: ToolContext[holdfast.Store]) -> str:
        """Ask for a cancellation, as another process would."""
        await ctx.deps.cancel("s", reason="enough")
        return "asked"

    agent = make([call("stop"), "Done."], tools=[stop])
    async with fresh_store() as store:
        stopped = await agent.run("Go", session="s", store=store, deps=store, key="a")
        assert (stopped.status, stopped.reason) == ("cancelled", "enough")
        assert await agent.run("Go", session="s", store=store, deps=store, key="a") == stopped
        resumed = await agent.resume("s", store=store, deps=store)
        assert await agent.run("Go", session="s", store=store, deps=store, key="a") == resumed


async def test_a_request_that_waits_for_a_person_is_looked_at_again() -> None:
    """Until there is an answer, it waits; then it goes on, and its outcome is recorded."""
    world = World()
    agent = make([call("fire", what="ann"), "Fired."], world)
    async with fresh_store() as store:
        for _ in range(2):
            waiting = await agent.run("Go", session="s", store=store, key="a")
            assert [one.tool for one in waiting.waiting] == ["fire"]
        # The next message waits in the inbox until the step is whole.
        later = await agent.run("And now?", session="s", store=store, key="b")
        assert later.status == "waiting"
        await store.approve("s", "c-fire", by="bob")
        done = await agent.run("Go", session="s", store=store, key="a")
        assert done.output == "Fired."
        assert world.done == ["fire ann"]
        # Both were in the transcript when the model replied.
        assert await agent.run("And now?", session="s", store=store, key="b") == done
        assert [one for one in await texts(store, "s") if one.startswith("user")] == [
            "user: Go",
            "user: And now?",
        ]


async def test_a_submission_and_a_run_share_their_keys() -> None:
    """A message that was submitted is answered, not added again; and the other way round."""
    agent = make(["One.", "Two."])
    async with fresh_store() as store:
        async with store.session("s"):
            pass
        await store.submit("s", "Hello", key="a")
        outcome = await agent.run("Hello", session="s", store=store, key="a")
        assert outcome.output == "One."
        await store.submit("s", "Hello", key="a")
        assert await agent.resume("s", store=store) == outcome
        assert await texts(store, "s") == ["user: Hello", "assistant: One."]
        await agent.run("Bye", session="s", store=store, key="b")
        await store.submit("s", "Bye", key="b")
        async with store.session("s") as session:
            assert len(session.transcript) == 4


async def test_a_message_that_a_rewind_left_behind_unanswered_is_added_again() -> None:
    """The session has forgotten it, so the request is a new one."""
    agent = make(["One.", "Two."])
    async with fresh_store() as store:
        await agent.run("Hello", session="s", store=store)
        async with store.session("s") as session:
            version = session.version
            with pytest.raises(ZeroDivisionError):
                await make(ScriptedModel(fail)).run("Go", session=session, key="a")
            await session.rewind(version=version)
        assert (await agent.run("Go", session="s", store=store, key="a")).output == "Two."
        assert [one for one in await texts(store, "s") if one == "user: Go"] == ["user: Go"]


def fail(prompt: Prompt) -> str:
    raise ZeroDivisionError


async def test_an_erased_message_keeps_its_key() -> None:
    """What was said is gone, so it cannot be compared; it is not said again either."""
    agent = make(["One.", "Two."])
    async with fresh_store() as store:
        await agent.run("Hello", session="s", store=store, key="a")
        await store.clean("s", checkpoints=False)
        again = await agent.run("Hello", session="s", store=store, key="a")
        assert (again.status, again.output) == ("completed", "[erased]")


async def test_a_fork_has_keys_of_its_own() -> None:
    """It is another conversation: a request to it is answered in it."""
    agent = make(["One.", "Two."])
    async with fresh_store() as store:
        await agent.run("Hello", session="s", store=store, key="a")
        fork = await store.fork("s")
        assert (await agent.run("Hello", session=fork, store=store, key="a")).output == "Two."


async def test_a_stream_of_an_answered_message_is_its_outcome() -> None:
    """Nothing is streamed twice."""
    agent = make(["One."])
    async with fresh_store() as store:
        first = [event async for event in agent.stream("Hello", session="s", store=store, key="a")]
        again = [event async for event in agent.stream("Hello", session="s", store=store, key="a")]
    assert len(first) > 1
    assert again == first[-1:]


def test_a_key_without_an_event_loop() -> None:
    """The same in a script."""
    agent = blocking.Agent(ScriptedModel(["One.", "Two."]))
    with blocking.open_store("memory:") as store:
        first = agent.run("Hello", session="s", store=store, key="a")
        assert agent.run("Hello", session="s", store=store, key="a") == first
        (only,) = agent.stream("Hello", session="s", store=store, key="a")
        assert only == first


async def test_keys_survive_a_keyframe(tmp_path: Path) -> None:
    """The fold that is written down has them, and reads earlier outcomes as the journal would give them."""
    url = f"sqlite:{tmp_path}/a.db"
    agent = make([f"Reply {number}." for number in range(200)])
    outcomes: dict[str, Outcome[Any]] = {}
    async with open_store(url) as store, store.session("s") as session:
        for number in range(200):
            key = f"k{number}"
            outcomes[key] = await agent.run(f"Message {number}", session=session, key=key)
        assert session.state.keyframe_seq > 0
    async with open_store(url) as store:
        for key in ("k0", "k77", "k198", "k199"):
            said = f"Message {key[1:]}"
            assert await agent.run(said, session="s", store=store, key=key) == outcomes[key]


# -- killed ----------------------------------------------------------------------------------------------


def make_payer(place: str) -> holdfast.Agent[Any, str]:
    """It pays once, by a line in a file, and can look whether it has."""
    book = Path(place, "paid")

    def was_paid(ctx: ToolContext[None], what: str) -> holdfast.Landed | holdfast.NotLanded:
        paid = book.exists() and ctx.key in book.read_text()
        return holdfast.Landed("paid") if paid else holdfast.NotLanded()

    @holdfast.tool(side_effects={"mutate"}, verify=was_paid)
    def pay(ctx: ToolContext[None], what: str) -> str:
        """Pay for something."""
        with book.open("ab") as file:
            file.write(f"{ctx.key}\n".encode())
        return "paid"

    model = ScriptedModel([call("pay", what="tea"), "Paid.", "You are welcome."])
    return holdfast.Agent(model, name="payer", tools=[pay])


def ask(line: Line, place: str, number: int = 0, when: faults.When = "before") -> Any:
    """Two requests with keys, or a death at a change on the disk; the outcomes, and the changes."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    agent = make_payer(place)

    async def main() -> list[list[Any]]:
        async with open_store(f"dir:{place}/store") as store:
            found = [
                await agent.run(said, session="s", store=store, key=key, wait_s=30)
                for key, said in (("a", "Pay for tea."), ("b", "Thank you."))
            ]
            said = [message.text for message in (await store.load("s")).transcript if message.role == "user"]
            runs = [run.status async for run in store.runs(session="s")]
            return [[one.output, one.run, one.usage.tokens] for one in found] + [said, runs]

    found = anyio.run(main)
    return [found, [event.kind for event in disk.events]]


def ask_twice(line: Line, place: str) -> Any:
    """The same requests again, and once more."""
    return [ask(line, place)[0], ask(line, place)[0]]


@pytest.mark.parametrize(
    ("first", "stride"), [(3, 17), *(pytest.param(first, 8, marks=pytest.mark.long) for first in range(8))]
)
def test_a_request_that_is_sent_again_after_a_kill_is_answered_once(
    warm: Warm, quick_path: Path, first: int, stride: int
) -> None:
    """Killed at any change on the disk: before anything is recorded, with the message there, with the reply
    there, after the end. The request sent again gets the outcome, and the third one exactly the same."""
    place = quick_path / "whole"
    place.mkdir()
    whole, changes = warm.call(ask, str(place))
    assert [one[0] for one in whole[:2]] == ["Paid.", "You are welcome."]
    killed, resumed = 0, 0
    deaths = [
        (number, when)
        for number, kind in enumerate(changes, start=1)
        for when in (("before", "half") if kind == "write" else ("before",))
    ]
    for number, when in deaths[first::stride]:
        place = quick_path / f"{number}-{when}"
        place.mkdir()
        with warm.child(ask, str(place), number, when) as child:
            killed += child.outcome() is None
        found, again = warm.call(ask_twice, str(place))
        assert again == found, (number, when)
        assert [one[0] for one in found[:2]] == ["Paid.", "You are welcome."], (number, when)
        assert found[2] == ["Pay for tea.", "Thank you."], (number, when)
        assert (place / "paid").read_text().count("\n") == 1, (number, when)
        resumed += "interrupted" in found[3]
    assert killed > len(deaths[first::stride]) // 2
    assert resumed

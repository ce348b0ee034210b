"""What happens to sessions on their way: each is replayed with unchanged code, and nothing differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import holdfast
from holdfast.agents import Price, Prompt, Reply, ScriptedModel
from holdfast.agents.loop import Compaction
from holdfast.errors import ModelError
from holdfast.messages import Message, Text
from holdfast.records import Usage
from holdfast.replay import read_recording, replay_recording, replay_session
from holdfast.tools import Retry
from tests.replay.clerks import DONE, SCRIPT, call, kinds, look_up, make_clerk

pytestmark = pytest.mark.anyio
Store = holdfast.Store
Agent = holdfast.Agent[Any, Any]


@holdfast.tool(name="pay", side_effects="mutate", needs_approval=True)
async def asking(order: str, cents: int) -> str:
    """Pay, if a person agrees."""
    DONE.append("pay")
    return f"paid {cents}"


def make_asking() -> Agent:
    return make_clerk([call("pay", order="42", cents=5), "Done."], tools=[asking])


async def approved(store: Store) -> Callable[[], Agent]:
    await make_asking().run("Pay", session="s", store=store)
    await store.approve("s", "c", by="ann", args={"order": "42", "cents": 7})
    await make_asking().resume("s", store=store)
    return make_asking


async def refused(store: Store) -> Callable[[], Agent]:
    await make_asking().run("Pay", session="s", store=store)
    await store.refuse("s", "c", by="ann", reason="no")
    await make_asking().resume("s", store=store)
    return make_asking


async def waiting(store: Store) -> Callable[[], Agent]:
    await make_asking().run("Pay", session="s", store=store)
    return make_asking


async def in_doubt(store: Store) -> Callable[[], Agent]:
    """Cut off in the middle of an effect; a person says what became of it."""
    script = [call("pay", order="42", cents=5), "Done."]

    @holdfast.tool(name="pay", side_effects="mutate")
    async def hangs(order: str, cents: int) -> str:
        """Pay."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    with anyio.CancelScope() as scope:
        await make_clerk(script, tools=[hangs], grace_s=0.0).run("Pay", session="s", store=store)
    assert (await make_clerk(script).resume("s", store=store)).status == "waiting"
    await store.resolve("s", "c", "landed", by="ann", result={"receipt": 7})
    await make_clerk(script).resume("s", store=store)
    return make_clerk


async def delegated(store: Store) -> Callable[[], Agent]:
    """A delegate has spent what was left: the run ends because of it."""
    price = Price(input_usd_per_mtok=0, output_usd_per_mtok=100)
    costly = Reply(message=_calling(1), usage=Usage(output_tokens=12_000))
    helper = holdfast.Agent(
        ScriptedModel([costly]), name="helper", tools=[look_up], price=price, max_tokens=100
    )

    def make() -> Agent:
        script = [call("helper", task="look"), call("look_up", order="42"), "Done."]
        return make_clerk(
            script,
            tools=[look_up, helper.as_tool()],
            price=price,
            budget=holdfast.Budget(usd=1.0),
            max_tokens=100,
        )

    assert (await make().run("Pay", session="s", store=store)).reason == "budget_spent"
    return make


async def delegated_steps(store: Store) -> Callable[[], Agent]:
    """The steps of a delegate count."""
    helper = holdfast.Agent(ScriptedModel([_calling(1), "Fine."]), name="helper", tools=[look_up])

    def make() -> Agent:
        script = [call("helper", task="look"), *map(_calling, range(5))]
        return make_clerk(script, tools=[look_up, helper.as_tool()], budget=holdfast.Budget(steps=5))

    outcome = await make().run("Pay", session="s", store=store)
    assert outcome.reason == "budget_spent"
    return make


async def out_of_money(store: Store) -> Callable[[], Agent]:
    """The budget ends it."""

    def make() -> Agent:
        lines = [Reply(message=_calling(number), usage=Usage(output_tokens=2_000)) for number in range(5)]
        return make_clerk(lines, budget=holdfast.Budget(tokens=5_000), max_tokens=300)

    assert (await make().run("Pay", session="s", store=store)).reason == "budget_spent"
    return make


def _calling(number: int) -> Message:
    return Message(role="assistant", blocks=(call("look_up", order=str(number)),))


async def out_of_time(store: Store) -> Callable[[], Agent]:
    """A replay takes no time, so a cap on seconds ends none, however short."""

    def make() -> Agent:
        return make_clerk(budget=holdfast.Budget(seconds=1e-9))

    @holdfast.tool(name="look_up", side_effects="read")
    async def hurry(ctx: holdfast.ToolContext[None], order: str) -> str:
        """Look."""
        await ctx.session.set_budget(holdfast.Budget(seconds=1e-9))
        return "found"

    short = make_clerk([_calling(0), _calling(1)], tools=[hurry])
    assert (await short.run("Pay", session="s", store=store)).reason == "budget_spent"
    return make


async def failing_model(store: Store) -> Callable[[], Agent]:
    """Requests that failed have cost money, too: so much that the run ends."""

    def make() -> Agent:
        lost = ModelError("overloaded", retryable=True, charged=True)
        script = [lost, lost, call("look_up", order="42"), lost, "Done."]
        return make_clerk(
            script,
            retry=Retry(attempts=3, backoff_s=0.0, jitter=0.0),
            budget=holdfast.Budget(tokens=12_000),
            max_tokens=4_000,
        )

    assert (await make().run("Pay", session="s", store=store)).reason == "budget_spent"
    return make


async def model_is_gone(store: Store) -> Callable[[], Agent]:
    """The run failed with an error of the model."""

    def make() -> Agent:
        return make_clerk([call("look_up", order="42")])

    assert (await make().run("Pay", session="s", store=store)).reason == "model_error"
    return make


async def resumed_after_steps(store: Store) -> Callable[[], Agent]:
    """It had no steps left, and was resumed."""

    def make() -> Agent:
        return make_clerk([call("look_up", order=str(n)) for n in range(5)] + ["Done."], max_steps=2)

    while (await make().run("Pay", session="s", store=store, key="k")).status != "completed":
        await make().resume("s", store=store)
    return make


async def message_in_between(store: Store) -> Callable[[], Agent]:
    """A message came while the last reply was made, and another in the middle of a step."""

    @holdfast.tool(name="look_up", side_effects="read")
    async def told(order: str) -> str:
        """Look."""
        await store.submit("s", "And the other one")
        return "found"

    def make() -> Agent:
        return make_clerk([call("look_up", order="42"), "Done.", "That, too."], tools=[told])

    def talk(prompt: Prompt) -> Any:
        said = sum(message.role == "assistant" for message in prompt.messages)
        return [call("look_up", order="42"), "Done.", "That, too."][said]

    async def send(session: holdfast.Session) -> None:
        if len(session.transcript) == 4:
            await store.submit("s", "One more")

    # With a budget, each request is durable before it is sent, and the inbox is taken in with it.
    busy = make_clerk(talk, tools=[told], compact=send, budget=holdfast.Budget(tokens=100_000))
    outcome = await busy.run("Pay", session="s", store=store)
    assert outcome.output == "That, too."
    return make


@dataclass
class Answer:
    paid: int


async def typed(store: Store) -> Callable[[], Agent]:
    """It had to be reminded to give its output."""

    def make() -> Agent:
        script = ["Hm.", call("final_result", paid="many"), call("final_result", paid=3)]
        return make_clerk(script, output_type=Answer)

    assert (await make().run("Pay", session="s", store=store)).output == Answer(3)
    assert (await make().run("Again", session="s", store=store)).reason == "model_error"
    return make


async def looping(store: Store) -> Callable[[], Agent]:
    """A gate refused the third equal call, and one without a tool."""

    def make() -> Agent:
        same = [call("look_up", order="42")] * 3
        return make_clerk([*same, call("look_upp", order="42"), call("look_up", orde="42"), "Done."])

    await make().run("Pay", session="s", store=store)
    return make


async def rewound(store: Store) -> Callable[[], Agent]:
    """What a rewind left behind is no part of it, but its effects are."""
    script = [call("pay", order="42", cents=5), "Done."]

    def make() -> Agent:
        return make_clerk(script)

    await make().run("Pay", session="s", store=store)
    async with store.session("s") as session:
        first = session.state.path()[0]
        assert not first.why
        await session.rewind(version=first.version)
    other = make_clerk([call("pay", order="42", cents=5), call("pay", order="42", cents=5), "Done."])
    await other.run("Pay again", session="s", store=store)
    return make


async def forked(store: Store) -> Callable[[], Agent]:
    """A fork has the course of its origin, and its spending anew."""

    def make() -> Agent:
        return make_clerk(SCRIPT, budget=holdfast.Budget(tokens=40_000))

    await make().run("Pay", session="origin", store=store)
    await store.fork("origin", into="s")
    await make().run("And 43?", session="s", store=store)
    return make


async def compacted(store: Store) -> Callable[[], Agent]:
    """Messages that were compacted away count."""

    def shorten(session: holdfast.Session) -> Compaction | None:
        return Compaction(message="Before: a lot.", keep=2) if len(session.transcript) > 4 else None

    def talk(prompt: Prompt) -> Any:
        steps.append(prompt)
        return call("look_up", order=str(len(steps))) if len(steps) < 6 else "Done."

    steps: list[Prompt] = []

    def make() -> Agent:
        return make_clerk(talk, compact=shorten)

    await make().run("Pay", session="s", store=store)
    return make


async def with_history(store: Store) -> Callable[[], Agent]:
    """The caller added messages before, and a picture."""

    def make() -> Agent:
        return make_clerk(["Before.", "Done."])

    async with store.session("s") as session:
        await session.add(Message(role="user", blocks=(Text("Long ago"),)))
        await session.add(Message(role="assistant", blocks=(Text("Before."),)))
        picture = holdfast.messages.Media(media_type="image/png", data=b"\x89PNG" * 20_000)
        await make().run(Message(role="user", blocks=(Text("This one"), picture)), session=session)
    return make


COURSES: list[Callable[[Store], Awaitable[Callable[[], Agent]]]] = [
    approved, refused, waiting, in_doubt, delegated, delegated_steps, out_of_money, out_of_time,
    failing_model, model_is_gone, resumed_after_steps, message_in_between, typed, looping, rewound, forked,
    compacted, with_history,
]  # fmt: skip


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
async def test_unchanged_code_takes_the_same_course(course: Callable[[Store], Awaitable[Any]]) -> None:
    """Whatever happened to the session: no difference, all replies, and nothing is done."""
    async with holdfast.open_store("memory:") as store:
        make = await course(store)
        DONE.clear()
        replay = await replay_session(store, "s", make())
        assert kinds(replay) == [], str(replay)
        assert replay.stopped == ""
        assert replay.given == replay.replies > 0 or course is waiting
        assert DONE == []
        # A recording is plain data.
        recording = await read_recording(store, "s")
        written = holdfast.replay.dump_recording(recording)
        assert await replay_recording(written, make()) == replay

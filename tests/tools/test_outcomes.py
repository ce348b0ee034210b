"""What became of a call: done, surely not done, or in doubt, and how a tool settles its own doubts."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from msgspec import Struct
from pydantic import BaseModel

import holdfast.tools.reconcile
from holdfast import Landed, NotDone, NotLanded, Registry, ToolContext, Unsure, tool
from holdfast.core.entries import ToolFailed, ToolInDoubt, ToolIssued, ToolSettled
from holdfast.errors import BadInput
from holdfast.tools import Retry
from tests.tools.example_tools import (
    NoWaiting,
    Url,
    World,
    bodies,
    call,
    die,
    kinds,
    later,
    opened,
    reply,
    results,
)

Answer = Landed | NotLanded | Unsure


class OutOfPaper(Exception):
    """Before anything is printed."""


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def failing(world: World, error: BaseException, *, lands: bool = True, **options: Any) -> Registry:
    """A tool that raises the first time, after its effect landed (or before)."""
    errors = iter([error])

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act(ctx: ToolContext[Any], what: str = "it") -> str:
        error = next(errors, None)
        if error is None or lands:
            world.do(what, ctx.key)
        if error is not None:
            raise error
        return f"did {what}"

    return Registry([act], max_repeats=100)


# -- an exception is not "nothing happened" ------------------------------------------------------------


async def test_an_exception_out_of_a_body_with_side_effects_is_a_doubt(store_url: Url, world: World) -> None:
    """It happened, or it did not: the call is told what is known, and the operation is blocked."""
    registry = failing(world, ValueError("connection reset"))
    async with opened(store_url) as (store, session):
        first = await registry.dispatch("act", {}, call_id="c1", session=session)
        assert first.status == "in_doubt"
        assert first.is_error
        assert "act: call 'c1' of " in first.content
        assert (
            "is in doubt: it raised ValueError: connection reset. Whether it happened is not known"
            in first.content
        )
        assert [row.call.id for row in session.in_doubt] == ["c1"]
        second = await registry.dispatch("act", {}, call_id="c2", session=session)
        assert second.status == "in_doubt"
        assert second.content == first.content
        assert [one.why for one in await bodies(store, session, ToolInDoubt)] == [
            "it raised ValueError: connection reset"
        ]
    async with opened(store_url) as (_, session):
        assert [row.why for row in session.in_doubt] == ["it raised ValueError: connection reset"]
        third = await registry.dispatch("act", {}, call_id="c1", session=session)
        assert third.content == first.content
    assert world.done == ["it"]


@pytest.mark.parametrize("error", [NotDone("no money"), OutOfPaper("tray 2"), KeyError("k")])
async def test_an_exception_that_says_so_means_that_nothing_happened(
    error: Exception, store_url: Url, world: World
) -> None:
    """`NotDone`, or a type that the tool lists: failed, and it may be done again."""
    registry = failing(world, error, lands=False, harmless=[OutOfPaper, LookupError])
    async with opened(store_url) as (store, session):
        first = await registry.dispatch("act", {}, session=session)
        assert (first.status, first.is_error) == ("failed", True)
        assert first.content == f"act raised {type(error).__name__}: {error}"
        assert session.in_doubt == []
        assert [one.final for one in await bodies(store, session, ToolFailed)] == [True]
        second = await registry.dispatch("act", {}, session=session)
        assert second.status == "completed"
    assert world.done == ["it"]


async def test_an_exception_out_of_a_harmless_body_is_a_failure(store_url: Url) -> None:
    """The loop goes on: the model is shown the error."""

    @tool(side_effects=())
    async def calc(expression: str) -> int:
        raise ValueError("what is that?")

    async with opened(store_url) as (_, session):
        found = await Registry([calc]).dispatch("calc", {"expression": "1+"}, session=session)
        assert found.content == "calc raised ValueError: what is that?"
        assert found.status == "failed"
        assert session.in_doubt == []


async def test_without_a_session_an_exception_is_an_error_result() -> None:
    """The gates alone: there is no ledger to be in doubt in."""

    @tool(side_effects={"mutate"})
    def act() -> None:
        raise ValueError("oh")

    found = await Registry([act]).dispatch("act", {}, call_id="c1")
    assert (found.call_id, found.name, found.content, found.status) == (
        "c1",
        "act",
        "act raised ValueError: oh",
        "failed",
    )


class Unspeakable(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (Unspeakable(), "Unspeakable: ?"),
        (ValueError("\ud800"), "ValueError: \\ud800"),
        (ValueError("x" * 100_000), "ValueError: " + "x" * 3988),
    ],
    ids=["unspeakable", "surrogate", "endless"],
)
async def test_whatever_an_exception_says_it_can_be_recorded(
    error: Exception, shown: str, store_url: Url, world: World
) -> None:
    """An effect that happened must not be forgotten because its error message is odd."""
    registry = failing(world, error)
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("act", {}, session=session)
        assert f"it raised {shown}. Whether" in found.content
        assert session.in_doubt[0].why == f"it raised {shown}"


# -- verify --------------------------------------------------------------------------------------------


def verified(world: World, answer: Callable[..., Any], **options: Any) -> Registry:
    """A tool that raises the first time after (or before) its effect, and can be asked."""

    async def check(ctx: ToolContext[Any], what: str = "it") -> Any:
        return answer(ctx)

    return failing(world, ValueError("reset"), verify=check, **options)


async def test_a_doubt_is_settled_at_once_where_the_tool_says_how(store_url: Url, world: World) -> None:
    """It landed: the call is completed with what the hook found out."""
    registry = verified(world, lambda ctx: Landed({"id": 7, "key": ctx.key}))
    async with opened(store_url) as (store, session):
        found = await registry.dispatch("act", {}, call_id="c1", session=session)
        assert found.status == "completed"
        assert found.value == {"id": 7, "key": world.keys[0]}
        assert session.in_doubt == []
        (settled,) = await bodies(store, session, ToolSettled)
        assert (settled.verdict, settled.by) == ("landed", "verify")
        again = await registry.dispatch("act", {}, call_id="c2", session=session)
        assert (again.value, again.replay_of) == (found.value, "c1")
    assert world.done == ["it"]


async def test_what_did_not_land_may_be_done_again(store_url: Url, world: World) -> None:
    """With the same key; the call itself is told that nothing was done."""
    seen: list[str] = []

    def not_there(ctx: ToolContext[Any]) -> Answer:
        seen.append(ctx.key)
        return NotLanded()

    registry = verified(world, not_there, lands=False)
    async with opened(store_url) as (_, session):
        first = await registry.dispatch("act", {}, session=session)
        assert first.content == "act raised ValueError: reset. It was checked: nothing was done."
        assert first.status == "failed"
        assert session.in_doubt == []
        second = await registry.dispatch("act", {}, session=session)
        assert second.status == "completed"
    assert world.keys == seen


async def test_what_did_not_land_is_retried_at_once_if_there_are_attempts_left(
    store_url: Url, world: World
) -> None:
    """The model need not hear of it."""
    registry = verified(world, lambda ctx: NotLanded(), lands=False, retry=Retry(attempts=2, backoff_s=0))
    async with opened(store_url) as (store, session):
        found = await registry.dispatch("act", {}, session=session)
        assert found.status == "completed"
        issued = await bodies(store, session, ToolIssued)
    assert [one.attempt for one in issued] == [1, 2]
    assert {one.key for one in issued} == set(world.keys)


async def test_a_key_that_was_made_void_is_not_used_again(store_url: Url, world: World) -> None:
    """`NotLanded(final=True)`: the service refuses it from now on, so the next try gets another one."""
    for retry in (Retry(attempts=1), Retry(attempts=2, backoff_s=0)):
        voided: list[str] = []

        def make_void(ctx: ToolContext[Any], voided: list[str] = voided) -> Answer:
            voided.append(ctx.key)
            return NotLanded(final=True)

        registry = verified(world, make_void, lands=False, retry=retry)
        async with opened(store_url, f"s{retry.attempts}") as (_, session):
            found = await registry.dispatch("act", {}, session=session)
            if found.status == "failed":
                found = await registry.dispatch("act", {}, session=session)
            assert found.status == "completed"
            assert session.in_doubt == []
        assert len(voided) == 1
        assert world.keys[-1] != voided[0]
    assert len(world.done) == 2


def raise_it(ctx: ToolContext[Any]) -> Answer:
    """A hook that fails."""
    raise ConnectionError("no answer")


@pytest.mark.parametrize(
    "answer",
    [lambda ctx: Unsure("they are closed"), raise_it, lambda ctx: None, lambda ctx: True],
    ids=["unsure", "raises", "nothing", "nonsense"],
)
async def test_a_hook_that_cannot_tell_is_unsure(
    answer: Callable[..., Any], store_url: Url, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Never "not landed": the call stays in doubt."""
    caplog.set_level(logging.CRITICAL, "holdfast")
    registry = verified(world, answer)
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("act", {}, session=session)
        assert found.status == "in_doubt"
        assert len(session.in_doubt) == 1
    assert world.done == ["it"]


@pytest.mark.parametrize("sync", [False, True])
async def test_a_hook_that_hangs_is_unsure(
    sync: bool, store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a limit of its own, also in a thread."""
    monkeypatch.setattr(holdfast.tools.reconcile, "VERIFY_S", 0.01)
    release = threading.Event()

    async def hang(what: str) -> Any:
        await anyio.sleep_forever()

    def hang_in_thread(what: str) -> Any:
        release.wait(60)

    registry = failing(world, ValueError("reset"), verify=hang_in_thread if sync else hang)
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("act", {}, session=session)
        release.set()
        assert found.status == "in_doubt"
    assert world.done == ["it"]


async def test_a_hook_may_be_a_plain_function(store_url: Url, world: World) -> None:
    """It runs in a thread, with the tool's arguments by name."""

    def check(what: str) -> Answer:
        return Landed(what.upper())

    registry = failing(world, ValueError("reset"), verify=check)
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("act", {"what": "x"}, session=session)
        assert found.value == "X"


async def test_a_hook_is_told_what_the_body_was_told(store_url: Url, world: World) -> None:
    """Key, attempt, time, dependencies, and what the body noted before it failed."""
    told: list[ToolContext[Any]] = []

    async def check(ctx: ToolContext[str], what: str) -> Answer:
        told.append(ctx)
        return Landed()

    @tool(side_effects={"mutate"}, verify=check)
    async def act(ctx: ToolContext[str], what: str) -> None:
        told.append(ctx)
        await ctx.annotate(vendor="v-1")
        raise ValueError("reset")

    async with opened(store_url) as (_, session):
        await Registry([act]).dispatch("act", {"what": "x"}, session=session, deps="deps", call_id="c1")
        body, hook = told
        assert (body.key, body.attempt, body.deps, body.call_id) == (hook.key, 1, "deps", "c1")
        assert (hook.deps, hook.call_id, hook.notes) == ("deps", "c1", {"vendor": "v-1"})
        assert hook.issued_at == body.issued_at is not None
        assert hook.session is session
        assert hook.fence == session.fence > 0


async def test_a_hook_that_needs_time_is_asked_later(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify_after_s`: some services know of a payment only after a while."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)
    registry = verified(world, lambda ctx: Landed(), verify_after_s=30)
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {}, session=session)
    assert len(waiting.slept) == 1
    assert 20 < waiting.slept[0] <= 30


# -- idempotent ----------------------------------------------------------------------------------------


async def test_an_idempotent_tool_is_tried_again_with_the_same_key(store_url: Url, world: World) -> None:
    """Three times unless it says otherwise, every attempt on record."""
    registry = failing(world, ValueError("reset"), idempotent=True, retry=Retry(attempts=3, backoff_s=0))
    async with opened(store_url) as (store, session):
        found = await registry.dispatch("act", {}, session=session)
        assert found.status == "completed"
        assert (await kinds(store, session))[-4:] == [
            "tool.issued",
            "tool.in_doubt",
            "tool.issued",
            "tool.completed",
        ]
    assert world.done == ["it", "it"]
    assert len(set(world.keys)) == 1


@pytest.mark.parametrize(("age_s", "runs"), [(9.0, 2), (11.0, 1)])
async def test_an_idempotent_tool_is_run_again_only_while_the_service_remembers(
    age_s: float, runs: int, store_url: Url, world: World
) -> None:
    """Afterwards the same key would do it again."""
    registry = failing(world, ValueError("reset"), idempotent=10, retry=Retry(attempts=1))
    async with opened(store_url) as (_, session):
        assert (await registry.dispatch("act", {}, session=session)).status == "in_doubt"
        later(session, age_s)
        found = await registry.dispatch("act", {}, session=session)
        assert found.status == ("completed" if runs == 2 else "in_doubt")
    assert len(world.done) == runs
    assert len(set(world.keys)) == 1


async def test_the_window_counts_from_the_first_attempt(store_url: Url, world: World) -> None:
    """Not from the last: the service has seen the key then."""

    @tool(side_effects={"mutate"}, idempotent=10, retry=Retry(attempts=1))
    async def act(ctx: ToolContext[Any]) -> None:
        world.do("it", ctx.key)
        raise ValueError("reset")

    registry = Registry([act], max_repeats=100)
    async with opened(store_url) as (_, session):
        for _ in range(3):
            await registry.dispatch("act", {}, session=session)
            later(session, 4)
        await registry.dispatch("act", {}, session=session)
    assert len(world.done) == 3


async def test_a_write_in_doubt_that_was_overwritten_is_not_repeated(store_url: Url, world: World) -> None:
    """v1 in doubt, v2 done: bringing v1 back by itself would undo v2. Asked for anew, it has a new key."""
    fails = iter([True])

    @tool(side_effects={"write"}, retry=Retry(attempts=1))
    async def put(ctx: ToolContext[Any], value: str) -> None:
        world.do(value, ctx.key)
        if next(fails, False):
            raise ValueError("reset")

    registry = Registry([put])
    async with opened(store_url) as (_, session):
        await registry.dispatch("put", {"value": "v1"}, session=session)
        await registry.dispatch("put", {"value": "v2"}, session=session)
        left = await session.settle(registry)
        assert [row.args for row in left] == [{"value": "v1"}]
        assert world.done == ["v1", "v2"]
        again = await registry.dispatch("put", {"value": "v1"}, session=session)
        assert again.status == "completed"
    assert world.done == ["v1", "v2", "v1"]
    assert len(set(world.keys)) == 3


# -- results -------------------------------------------------------------------------------------------


class Receipt(BaseModel):
    """A structured result."""

    id: int
    tags: list[str] = []


class Ticket(Struct, tag_field="kind", tag="ticket"):
    """A msgspec struct."""

    id: int
    extra: Any = None


@dataclass
class Point:
    """A dataclass."""

    x: float
    y: Any


RESULTS: list[tuple[Any, Any, str]] = [
    ("plain", "plain", "plain"),
    ("line\nline", "line\nline", "line\nline"),
    (None, None, "null"),
    (True, True, "true"),
    (2**70, 2**70, str(2**70)),
    (0.5, 0.5, "0.5"),
    (Receipt(id=1), {"id": 1, "tags": []}, '{"id":1,"tags":[]}'),
    (Ticket(id=1), {"kind": "ticket", "id": 1, "extra": None}, '{"kind":"ticket","id":1,"extra":null}'),
    (
        [Ticket(id=1, extra={2: Receipt(id=3), "at": Point(math.nan, b"hi")})],
        [{"kind": "ticket", "id": 1, "extra": {"2": {"id": 3, "tags": []}, "at": {"x": "nan", "y": "aGk="}}}],
        '[{"kind":"ticket","id":1,"extra":{"2":{"id":3,"tags":[]},"at":{"x":"nan","y":"aGk="}}}]',
    ),
    (
        holdfast.messages.Media(media_type="image/png", data=b"hi"),
        {"kind": "media", "media_type": "image/png", "data": "aGk="},
        "[image/png, 2 bytes]",
    ),
    ({"a": (1, 2)}, {"a": [1, 2]}, '{"a":[1,2]}'),
    (b"hi", "aGk=", "[application/octet-stream, 2 bytes]"),
    (math.nan, "nan", "nan"),
    ({"x": [math.inf]}, {"x": ["inf"]}, '{"x":["inf"]}'),
    ("\ud800", "\\ud800", "\\ud800"),
    ({"k": "\udfff"}, {"k": "\\udfff"}, '{"k":"\\\\udfff"}'),
    (1 << 10_000, hex(1 << 10_000), hex(1 << 10_000)),
]


async def test_whatever_a_body_returns_is_recorded_and_replayed_as_it_was(store_url: Url) -> None:
    """An effect that happened must not be forgotten because its result is odd."""

    @tool(side_effects={"mutate"})
    async def act(number: int) -> Any:
        return RESULTS[number][0]

    registry = Registry([act])
    found = []
    async with opened(store_url) as (_, session):
        for number, (_, data, text) in enumerate(RESULTS):
            args = {"number": number}
            found.append(await registry.dispatch("act", args, call_id=f"a{number}", session=session))
            assert (found[-1].status, found[-1].value, found[-1].content) == ("completed", data, text)
    async with opened(store_url) as (_, session):
        for number, first in enumerate(found):
            args = {"number": number}
            again = await registry.dispatch("act", args, call_id=f"a{number}", session=session)
            other = await registry.dispatch("act", args, call_id=f"b{number}", session=session)
            assert again == first
            assert (other.value, other.content) == (
                first.value,
                f"[idempotent replay of a{number}]: {first.content}",
            )


async def test_a_step_result_is_data_in_the_transcript_too(store_url: Url) -> None:
    """Stored once: the transcript's block is the outcome."""

    @tool(side_effects={"read"})
    async def get() -> Receipt:
        return Receipt(id=3, tags=["a"])

    async with opened(store_url) as (_, session):
        await reply(session, call("get"))
        await Registry([get]).dispatch_step(session)
        (block,) = results(session)
        assert (block.value, block.content) == ({"id": 3, "tags": ["a"]}, '{"id":3,"tags":["a"]}')


# -- dying ---------------------------------------------------------------------------------------------


async def test_what_was_being_run_when_the_process_died_is_in_doubt(store_url: Url, world: World) -> None:
    """Found when the session is opened again; the harmless is simply run again."""

    @tool(side_effects={"mutate"})
    async def act(ctx: ToolContext[Any]) -> None:
        world.do("it", ctx.key)
        die(ctx.deps)

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch("act", {}, call_id="c1", session=session, deps=store)
    async with opened(store_url) as (store, session):
        (row,) = session.in_doubt
        assert (row.call.id, row.crashed) == ("c1", True)
        assert row.why == "the process that ran it is gone and left no outcome"
        for id in ("c1", "c2"):
            found = await registry.dispatch("act", {}, call_id=id, session=session, deps=store)
            assert found.status == "in_doubt"
    assert world.done == ["it"]


async def test_a_scope_of_the_run_does_not_forget_the_run_that_died(store_url: Url, world: World) -> None:
    """The very call goes on as what it was, though the run is another one now."""

    @tool(side_effects={"mutate"}, scope="run")
    async def act(ctx: ToolContext[Any]) -> None:
        world.do("it", ctx.key)
        die(ctx.deps)

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        async with session.run():
            await reply(session, call("act"))
            with pytest.raises(holdfast.errors.Closed):
                await registry.dispatch_step(session, deps=store)
    async with opened(store_url) as (store, session):
        async with session.run():
            (found,) = await registry.dispatch_step(session, deps=store)
            assert found.status == "in_doubt"
    assert world.done == ["it"]


async def test_a_fork_in_the_middle_of_a_call_does_not_make_it_again(store_url: Url, world: World) -> None:
    """Its origin may have done it: in the fork it is in doubt."""
    forked = anyio.Event()

    @tool(side_effects={"mutate"}, scope="call")
    async def act(ctx: ToolContext[Any]) -> None:
        await ctx.session.checkpoint()
        await ctx.deps.fork("s", into="f")
        forked.set()
        world.do("it", ctx.key)

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        await reply(session, call("act"))
        await registry.dispatch_step(session, deps=store)
        async with store.session("f") as fork:
            assert [row.tool for row in fork.in_doubt] == ["act"]
            (found,) = await registry.dispatch_step(fork, deps=store)
            assert found.status == "in_doubt"
    assert world.done == ["it"]


async def test_misuse_of_a_context_without_a_session_is_told() -> None:
    """A tool that needs the session says so in its own result."""

    @tool(side_effects=())
    async def who(ctx: ToolContext[Any]) -> str:
        with pytest.raises(BadInput, match="dispatched without a session"):
            print(ctx.session)
        await ctx.annotate(a=1)
        ctx.report("half")
        return f"{ctx.fence} {ctx.notes} {bool(ctx.key)}"

    assert (await Registry([who]).dispatch("who", {})).content == "0 {'a': 1} True"


@pytest.mark.parametrize("waits", [False, True])
async def test_a_harmless_body_that_is_cancelled_by_itself_has_failed(waits: bool, store_url: Url) -> None:
    """Something that it waited for was cancelled, and not the agent."""

    @tool(side_effects={"read"})
    async def leave() -> None:
        if waits:
            await anyio.sleep(0.001)
        raise asyncio.CancelledError

    @tool(side_effects={"read"})
    async def stay() -> str:
        return "here"

    async with opened(store_url) as (_, session):
        await reply(session, call("leave"), call("stay", id="c2"))
        left, stayed = await Registry([leave, stay]).dispatch_step(session)
        assert (left.status, stayed.status) == ("failed", "completed")
        assert "CancelledError" in left.content

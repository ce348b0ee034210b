"""Listing, answering and looking for work read no contents of messages, however much was said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from rich.console import Console

from holdfast import Registry, Store, ToolContext, open_store, tool
from holdfast.cli.options import DEFAULTS
from holdfast.cli.session_report import print_report, read_report, shape_report
from holdfast.core.codec import Page
from holdfast.drivers.contract import Driver
from holdfast.ids import SessionId
from holdfast.store.approvals import find_waiting
from holdfast.store.work_queue import find_due
from holdfast.tools import Landed, Unsure
from tests.internals import engine_of
from tests.session.example_sessions import StoreUrl, collect, step

Use: TypeAlias = Callable[[Store], Awaitable[None]]


@tool(side_effects={"mutate"}, needs_approval=True)
async def refund(cents: int) -> str:
    """Give the money back."""
    return f"refunded {cents}"


async def _look_up(ctx: ToolContext[Any], cents: int) -> Landed | Unsure:
    return Landed(f"charged {cents}") if ctx.deps == "the service answers" else Unsure("it does not answer")


@tool(side_effects={"mutate"}, verify=_look_up)
async def charge(ctx: ToolContext[Any], cents: int) -> str:
    """Charge the card on file."""
    raise ConnectionError("the answer is lost")


REGISTRY = Registry([charge, refund])


async def make_sessions(url: StoreUrl) -> None:
    """Long ones: one with a call in doubt, and one that waits for an approval and for a worker."""
    async with open_store(url) as store:
        for id in ("doubtful", "asking"):
            await store.submit(id, "Hello.", agent="clerk")
            async with store.session(id) as session:
                for number in range(30):
                    await step(session, f"message {number}")
                name = "charge" if id == "doubtful" else "refund"
                await REGISTRY.dispatch(name, {"cents": 5}, call_id="c", session=session)
        await store.submit("asking", "Are you there?")


@contextmanager
def watched(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The sessions of which the driver is to read contents, and how many reads there were in all."""
    read, reads = driver.read, list[tuple[SessionId, bool]]()

    def counted(session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        reads.append((session, said))
        return read(session, after, limit, said=said)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "read", counted)
        yield reads


async def sessions(store: Store) -> None:
    """`holdfast sessions`."""
    heads = await collect(store.sessions())
    assert [head.session for head in heads] == ["asking", "doubtful"]
    assert [head.title for head in heads] == ["Hello.", "Hello."]


async def pending(store: Store) -> None:
    """`holdfast pending`."""
    found = [(one.session, one.kind, one.args) for one in await find_waiting(store)]
    assert sorted(found) == [
        ("asking", "approval", {"cents": 5}),
        ("doubtful", "in_doubt", {"cents": 5}),
    ]


async def resolve(store: Store) -> None:
    """`holdfast resolve`, without a process that holds the session."""
    assert await store.resolve("doubtful", "c", "landed", by="ann", result="charged 5") == "settled"


async def approve(store: Store) -> None:
    """`holdfast approve`."""
    assert await store.approve("asking", "c", by="ann") == "settled"


async def settle(store: Store) -> None:
    """By a tool's own verify hook."""
    async with store.session("doubtful") as session:
        assert await session.settle(REGISTRY, deps="the service answers") == []


async def look_for_work(store: Store) -> None:
    """As a worker does, several times a second."""
    engine = engine_of(store)
    found = await engine.call(lambda: find_due(engine, ["clerk"], {}, 10, orphans=True))
    assert {head.session for head in found} == {"asking", "doubtful"}


async def show_brief(store: Store) -> None:
    """`holdfast show --brief`."""
    for session in ("asking", "doubtful"):
        report = await read_report(store, await store.head(session), brief=True)
        assert "timeline" not in shape_report(report)
        with Console(width=200).capture() as shown:
            print_report(Console(width=200), report, DEFAULTS)
        assert "timeline" not in shown.get()


USES: list[Use] = [sessions, pending, resolve, approve, settle, look_for_work, show_brief]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("with_keyframe", [False, True], ids=["no keyframe", "keyframe"])
async def test_no_content_is_read_where_none_is_shown(
    store_url: StoreUrl, use: Use, with_keyframe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts and details say all that is needed; what was said may be many times as much."""
    if with_keyframe:
        monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 20)
    await make_sessions(store_url)
    async with open_store(store_url) as store:
        driver = engine_of(store).driver
        assert (driver.find_keyframe(SessionId("asking")) is not None) == with_keyframe
        with watched(driver, monkeypatch) as reads:
            await use(store)
        assert [session for session, said in reads if said] == []


async def test_a_transcript_is_read_when_it_is_looked_at(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the reads above would have been counted."""
    await make_sessions(store_url)
    async with open_store(store_url) as store:
        with watched(engine_of(store).driver, monkeypatch) as reads:
            state = await store.load("asking")
            assert not any(said for _, said in reads)
            assert state.transcript[0].text == "Hello."
            assert [session for session, said in reads if said] == ["asking"]

"""When what was recorded is durable, and what a cancelled caller loses: nothing."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import anyio
import pytest

from holdfast import Session, Store, open_store
from holdfast.core.entries import SummaryChanged, ToolReported
from holdfast.core.session_state import read_keyframe
from holdfast.drivers.contract import Append, Outcome
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput, Closed, StoreBusy
from holdfast.ids import SessionId
from holdfast.records import Every
from tests.internals import writer_of
from tests.session.example_sessions import StoreUrl, collect, driver_of, eventually, kinds, step, texts

NEVER = 1000.0
"""A linger that no test outlives: only barriers write."""


async def durable(store: Store, session: str = "s") -> list[str]:
    """What another process finds at this moment."""
    return texts((await store.load(session)).transcript)


async def test_a_line_that_nobody_waits_for_is_durable_soon(store_url: StoreUrl) -> None:
    """It leaves after a short linger, by itself."""
    async with (
        open_store(store_url) as writer,
        open_store(store_url) as reader,
        writer.session("s") as session,
    ):
        await session.add("unasked")
        assert await eventually(lambda: durable(reader)) == ["unasked"]


async def test_what_is_recorded_together_is_recorded_whole_or_not_at_all(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them cannot be written: the others are neither in the state nor in the journal's way."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            with pytest.raises(BadInput, match="cannot be written"):
                writer_of(session).record(SummaryChanged(summary="a"), SummaryChanged(summary="half \ud83d"))
            monkeypatch.setattr("holdfast.core.codec.LINE_BYTES_MAX", 1_000)
            with pytest.raises(BadInput, match="over the limit"):
                writer_of(session).record(
                    SummaryChanged(summary="a"), ToolReported(issued=1), content=b"1" * 1_001
                )
            assert session.summary == ""
            await session.add("after it")
        found = await store.load("s")
        assert (found.summary, texts(found.transcript)) == ("", ["after it"])


async def test_nothing_is_waited_for_but_at_barriers(store_url: StoreUrl) -> None:
    """Adding and setting return at once; a checkpoint, a reply, a flush are durable on return."""
    async with (
        open_store(store_url, linger_s=NEVER) as writer,
        open_store(store_url) as reader,
        writer.session("s") as session,
        session.run() as run,
    ):
        await session.add("one")
        await session.set("k", 1)
        assert await durable(reader) == []
        assert texts(session.transcript) == ["one"]
        await session.checkpoint()
        assert await durable(reader) == ["one"]
        await session.add("two")
        assert await durable(reader) == ["one"]
        await session.flush()
        assert await durable(reader) == ["one", "two"]
        async with run.request() as request:
            assert (await kinds(reader, "s"))[-1] == "message.added"
            await request.reply("three")
            assert await durable(reader) == ["one", "two", "three"]
        await session.add("four")
        await session.rewind(steps=0)
        assert "session.rewound" in await kinds(reader, "s")
        await session.add("five")
    assert "five" in await reopened(store_url)


async def reopened(url: StoreUrl) -> list[str]:
    async with open_store(url) as store:
        return await durable(store)


async def checkpointed(session: Session, reader: Store) -> bool:
    """Whether a checkpoint waited for the disk."""
    version = await step(session, "x")
    return version in [one.version for one in await collect(reader.checkpoints("s"))]


async def test_per_step_every_checkpoint_is_durable(store_url: StoreUrl) -> None:
    """The default, and also when one asks for every tool call."""
    async with open_store(store_url, linger_s=NEVER) as writer, open_store(store_url) as reader:
        cadences: list[Literal["step", "call"]] = ["step", "call"]
        for cadence in cadences:
            async with writer.session("s", cadence=cadence) as session:
                assert [await checkpointed(session, reader) for _ in range(3)] == [True] * 3


async def test_every_n_steps_only_the_nth_checkpoint_is_waited_for(store_url: StoreUrl) -> None:
    """The ones between leave with it; a reply is never weakened by the cadence."""
    async with open_store(store_url, linger_s=NEVER) as writer, open_store(store_url) as reader:
        async with writer.session("s", cadence=Every(steps=3)) as session:
            waited = [await checkpointed(session, reader) for _ in range(7)]
            assert waited == [False, False, True, False, False, True, False]
            async with session.run() as run, run.request() as request:
                await request.reply("y")
                assert (await durable(reader))[-1] == "y"
        assert len(await collect(reader.checkpoints("s"))) == 8


async def test_every_t_seconds_the_first_checkpoint_after_that_is_waited_for(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that counts sleep."""
    clock = [1000.0]
    monkeypatch.setattr("holdfast.session.session.boot_s", lambda: clock[0])
    async with open_store(store_url, linger_s=NEVER) as writer, open_store(store_url) as reader:
        async with writer.session("s", cadence=Every(seconds=60)) as session:
            for now, waits in ((1010, False), (1059, False), (1060, True), (1119, False), (1130, True)):
                clock[0] = now
                assert await checkpointed(session, reader) is waits


def test_a_cadence_that_makes_no_sense_is_refused() -> None:
    """It would never wait, or always."""
    for options in ({}, {"steps": 0}, {"seconds": 0}, {"steps": -1, "seconds": 5}):
        with pytest.raises(BadInput):
            Every(**options)


async def test_an_unknown_cadence_is_refused(store_url: StoreUrl) -> None:
    """With those that there are."""
    async with open_store(store_url) as store:
        with pytest.raises(BadInput, match="'step', 'call' or Every"):
            store.session("s", cadence="sometimes")  # type: ignore[arg-type]


async def test_a_cancelled_caller_loses_nothing(store_url: StoreUrl) -> None:
    """Its lines are committed all the same, and the session goes on."""
    async with (
        open_store(store_url, linger_s=NEVER) as writer,
        open_store(store_url) as reader,
        writer.session("s") as session,
    ):
        await session.add("one")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.checkpoint()
        assert await eventually(lambda: durable(reader)) == ["one"]
        assert not session.is_lost
        assert await step(session, "two") == 2
        assert await durable(reader) == ["one", "two"]
        assert [entry.seq async for entry in reader.tail("s", follow=False)] == list(range(1, 7))


class GatedDriver(MemoryDriver):
    """Lets commits through only while the gate is open, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.waiting, self.commits = threading.Event(), threading.Event(), 0
        self.gate.set()

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        if not wait:
            raise StoreBusy("the gate may be closed")
        self.waiting.set()
        assert self.gate.wait(30)
        self.commits += 1
        return super().commit(batch)

    async def stop(self) -> None:
        """From now on, commits wait."""
        self.gate.clear()
        self.waiting.clear()


async def test_a_caller_cancelled_while_the_commit_is_under_way_loses_nothing() -> None:
    """Whatever it knows, the lines land once, and the next barrier stands on them."""
    driver = GatedDriver()
    async with open_store(driver) as store, store.session("s") as session:
        await driver.stop()
        await session.add("one")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.checkpoint)
                await anyio.to_thread.run_sync(driver.waiting.wait, 30)
                scope.cancel()
        driver.gate.set()
        assert await step(session, "two") == 2
        assert await durable(store) == ["one", "two"]
        assert (await kinds(store, "s")).count("checkpoint.taken") == 2


async def test_what_many_sessions_record_meanwhile_shares_one_commit() -> None:
    """While one commit is under way the next batch gathers."""
    driver = GatedDriver()
    async with open_store(driver) as store:
        sessions = [await store.session(f"s{number}").__aenter__() for number in range(20)]
        await driver.stop()
        before = driver.commits
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step, sessions[0], "first")
            await anyio.to_thread.run_sync(driver.waiting.wait, 30)
            for session in sessions[1:]:
                tasks.start_soon(step, session, "x")
            await anyio.wait_all_tasks_blocked()
            driver.gate.set()
        assert driver.commits - before == 2
        for session in sessions:
            await session.__aexit__(None, None, None)
            assert await durable(store, session.id) != []


async def test_an_error_inside_the_block_closes_the_session_properly(store_url: StoreUrl) -> None:
    """What was recorded is kept, the lease is given back, and the error goes on."""
    async with open_store(store_url, linger_s=NEVER) as one, open_store(store_url) as two:
        with suppress(ZeroDivisionError):
            async with one.session("s") as session:
                await session.add("before")
                raise ZeroDivisionError
            pytest.fail("the error was swallowed")
        async with two.session("s") as session:
            assert texts(session.transcript) == ["before"]


async def test_a_session_that_was_not_entered_says_so(store_url: StoreUrl) -> None:
    """Nothing was opened, and nothing is written."""
    async with open_store(store_url) as store:
        session = store.session("s")
        for use in (session.add("hello"), session.checkpoint(), session.set("k", 1)):
            with pytest.raises(Closed, match="async with"):
                await use
        with pytest.raises(Closed, match="async with"):
            _ = session.transcript
        assert await collect(store.sessions()) == []
        assert not hasattr(session, "no_such_thing")


async def test_a_session_that_is_left_in_good_order_leaves_little_to_fold(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keyframe goes with the line that gives the lease back, if enough has been said since the last one."""
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 8)
    async with open_store(store_url) as store:
        for said, is_worth_it in ((64, False), (8, True), (1, False)):
            async with store.session("s") as session:
                for number in range(said):
                    await session.add(str(number))
                last = session.state.seq
            with driver_of(store_url) as driver:
                frame = read_keyframe(driver.find_keyframe(SessionId("s")))
            assert frame is not None
            assert (frame.seq == last + 1) == is_worth_it
        assert len((await store.load("s")).transcript) == 73

"""Where commits are made: on the event loop's thread while that is quick, and else in one of the store's."""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import anyio
import pytest

from holdfast import Session, Store, open_store
from holdfast.core.codec import Chunk
from holdfast.drivers.contract import Append, Driver, Outcome
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.memory import MemoryDriver
from holdfast.engine import committer
from holdfast.errors import StoreBusy
from holdfast.system.file_locks import FileLock
from tests.internals import writer_of
from tests.session.example_sessions import step, texts

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the busiest machine makes of a commit in memory."""
    monkeypatch.setattr(committer, "COMMIT_HERE_S", 60.0)


@pytest.fixture
def hurried(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who want a slow one."""
    monkeypatch.setattr(committer, "COMMIT_HERE_S", QUICK_S)


QUICK_S = 0.02


def open_unhurried(driver: Driver) -> Store:
    """Nobody but who waits for lines has them committed."""
    return open_store(driver, linger_s=60)


class Noting(MemoryDriver):
    """Notes which thread each commit is made in, how many sessions it carries, and what it is told to do."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.made = threading.get_ident(), list[tuple[str, int]]()
        self.took_s, self.busy = 0.0, False
        self.interrupt: BaseException | None = None

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        where = "here" if threading.get_ident() == self.here else "thread"
        assert wait == (where == "thread")
        if self.busy and not wait:
            raise StoreBusy("somebody else is writing")
        outcomes = super().commit(batch)
        self.made.append((where, len(batch)))
        time.sleep(self.took_s)
        if self.interrupt is not None and not wait:
            error, self.interrupt = self.interrupt, None
            raise error
        return outcomes


async def _steps(session: Session, count: int) -> None:
    for number in range(count):
        await step(session, f"{number}")


async def _settle_in(session: Session, driver: Noting) -> None:
    """Until a slow first commit is forgotten."""
    with anyio.fail_after(60):
        while not driver.made or driver.made[-1] != ("here", 1):
            await step(session, "once more")
    driver.made.clear()


async def test_a_quick_commit_of_one_session_is_made_where_it_is_waited_for() -> None:
    """A hop into a thread and back would take longer than the commit."""
    driver = Noting()
    async with open_unhurried(driver) as store, store.session("s") as session:
        await _settle_in(session, driver)
        await _steps(session, 20)
        assert driver.made == [("here", 1)] * 20


@pytest.mark.usefixtures("hurried")
async def test_slow_commits_never_block_the_event_loop() -> None:
    """Not even now and then, to see whether they have become quick."""
    driver = Noting()
    driver.took_s = 2 * QUICK_S
    async with open_unhurried(driver) as store, store.session("s") as session:
        await _steps(session, 30)
    assert {where for where, _ in driver.made} == {"thread"}


@pytest.mark.usefixtures("hurried")
async def test_after_a_slow_one_others_are_made_in_the_thread() -> None:
    """For a while: then it is tried again."""
    driver = Noting()
    async with open_unhurried(driver) as store, store.session("s") as session:
        await _settle_in(session, driver)
        driver.took_s = 40 * QUICK_S
        await step(session, "slow")
        driver.took_s = 0.0
        await _steps(session, 10)
        assert driver.made[0] == ("here", 1)
        assert driver.made[1:] == [("thread", 1)] * 10
        await _settle_in(session, driver)


async def test_sessions_that_are_ready_in_one_turn_share_a_commit_in_the_thread() -> None:
    """The loop is theirs as well."""
    driver = Noting()
    async with open_unhurried(driver) as store:
        async with store.session("a") as a, store.session("b") as b, store.session("c") as c:
            await _settle_in(a, driver)
            async with anyio.create_task_group() as tasks:
                for session in (a, b, c):
                    tasks.start_soon(step, session, "together")
            assert driver.made == [("thread", 3)]


async def test_who_is_not_to_wait_is_committed_for_in_the_thread() -> None:
    """Another process that writes stops nobody's event loop, and nothing is lost or there twice."""
    driver = Noting()
    async with open_unhurried(driver) as store, store.session("s") as session:
        await _settle_in(session, driver)
        driver.busy = True
        before = len(session.transcript)
        await _steps(session, 3)
        assert driver.made == [("thread", 1)] * 3
        found = await store.load("s")
        assert texts(found.transcript)[before:] == ["0", "1", "2"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_a_signal_in_the_middle_of_a_commit_loses_nothing(raised: type[BaseException]) -> None:
    """Its handler raises after the lines have landed: the thread commits them again, and finds them there."""
    driver = Noting()

    async def work() -> None:
        async with open_unhurried(driver) as store, store.session("s") as session:
            await _settle_in(session, driver)
            driver.interrupt = raised()
            await step(session, "landed")
            assert driver.made[0] == ("here", 1)

    async def look() -> list[str]:
        async with open_unhurried(driver) as store, store.session("s") as session:
            return texts(session.transcript)

    with suppress(KeyboardInterrupt):
        asyncio.run(work())
    assert driver.interrupt is None
    found = asyncio.run(look())
    assert found[-1] == "landed"
    assert found.count("landed") == 1


class Interrupting:
    """Raises before the n-th line of a commit on this thread, as a signal's handler might."""

    def __init__(self, number: int) -> None:
        self.left, self.files = number, {committer.__file__}
        # What only runs for whoever leads: the others are to be told.
        self.names = {
            *("_lead", "_may_write_here", "_take_here", "take", "_write_here", "_note_time", "_settle"),
            "wake_up",
        }

    def __enter__(self) -> None:
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        code = frame.f_code
        return self._line if code.co_filename in self.files and code.co_name in self.names else None

    def _line(self, frame: FrameType, event: str, arg: object) -> TraceFunction:
        # Python sees to signals after calls, and never between the end of a block and its `__exit__`.
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        self.left -= event == "line" and not source.startswith("with ")
        if not self.left:
            self.left = -1
            raise InterruptedRun
        return self._line


class InterruptedRun(BaseException):
    """What a handler raises."""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_handler_that_raises_at_any_line_of_a_commit_holds_nobody_up() -> None:
    """Others who wait are told, the session goes on, and everything is there once."""
    number = 1
    while not await _is_over(number):
        number += 1
    assert number > 40


async def _is_over(number: int) -> bool:
    """Whether a commit has fewer lines than that."""
    while True:
        driver = Noting()
        async with open_store(driver) as store, store.session("s") as session:
            await _settle_in(session, driver)
            await session.add("landed")
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_flush_interrupted, session, number, found := list[bool]())
                    tasks.start_soon(session.flush)
                await step(session, "after")
            assert texts((await store.load("s")).transcript)[-2:] == ["landed", "after"]
        if found[0] or driver.made[0] == ("here", 1):
            return not found[0]
        # On a busy machine the linger may be over first, and the thread commits: once more.


async def _flush_interrupted(session: Session, number: int, found: list[bool]) -> None:
    try:
        with Interrupting(number):
            await session.flush()
    except InterruptedRun:
        found.append(True)
    else:
        found.append(False)


async def test_an_event_loop_that_is_busy_holds_no_other_one_up() -> None:
    """Whoever waits in another event loop is committed for by the thread, at once."""
    driver = Noting()
    done, busy = threading.Event(), threading.Event()

    async def elsewhere(store: Store) -> None:
        async with store.session("b") as second:
            busy.set()
            assert await anyio.to_thread.run_sync(begun.wait, 30)
            await step(second, "not held up")
            done.set()

    begun = threading.Event()
    async with open_unhurried(driver) as store, store.session("a") as first:
        await _settle_in(first, driver)
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere(store)))
        thread.start()
        assert await anyio.to_thread.run_sync(busy.wait, 30)
        await first.add("of the first")

        async def block() -> None:
            begun.set()
            assert done.wait(30)  # The event loop is blocked: on purpose.

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.flush)
            tasks.start_soon(block)
        await anyio.to_thread.run_sync(thread.join)


async def test_who_is_cancelled_while_others_have_their_turn_holds_nobody_up() -> None:
    """The lines of all of them are committed at once, and not only after the linger."""
    driver = Noting()
    async with open_unhurried(driver) as store:
        async with store.session("a") as first, store.session("b") as second:
            await _settle_in(first, driver)
            await first.add("of the first")
            await second.add("of the second")
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    with anyio.CancelScope() as scope:
                        scope.cancel()
                        await first.flush()
                    tasks.start_soon(second.flush)
            found = [await store.load(name) for name in ("a", "b")]
        assert [texts(one.transcript)[-1] for one in found] == ["of the first", "of the second"]


async def test_a_directory_is_not_waited_for_on_the_event_loop(tmp_path: Path) -> None:
    """Somebody else has the session's lock: refused at once, with nothing written."""
    driver = DirectoryDriver(tmp_path / "store")
    async with open_unhurried(driver) as store, store.session("s") as session:
        await step(session, "one")
        seq = session.state.seq
        # Where its lock is: the names of folders are the driver's own.
        lock = driver._folder(session.id).lock
        with FileLock(lock):
            item = _next(session)
            began_s = time.monotonic()
            with pytest.raises(StoreBusy):
                driver.commit([item], wait=False)
            assert time.monotonic() - began_s < 10
        assert (await store.load("s")).seq == seq


def _next(session: Session) -> Append:
    """A commit that would follow."""
    channel = writer_of(session).channel
    assert channel.head is not None
    chunk = Chunk(seq=channel.head.seq + 1, sum="next", facts=b"{}")
    return Append(session=session.id, after=channel.sum, chunks=(chunk,), head=channel.head)

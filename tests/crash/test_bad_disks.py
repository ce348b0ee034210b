"""The disk fails in the middle of a commit: one clear error, nothing lost, and later it simply goes on."""

import errno
import os
import resource
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import pytest

from holdfast import LeaseHeld, Session, Store, open_store
from holdfast.drivers.contract import Append, ClaimChange, Driver, Outcome
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import StoreFailed
from holdfast.testing.conformance.author import Author, read_all, say
from tests.stores import on_files, open_driver

from . import faults
from .acknowledged import Acks
from .fork_server import Line, Warm
from .writers import look

MUCH = "during " * 10_000
"""More than fits into what is left of a block."""
JOURNALS = {"dir": "journal.jsonl", "sqlite": "-wal"}


class Trouble(NamedTuple):
    """What goes wrong with the file that commits are written to."""

    error: int
    kinds: Sequence[faults.Kind]
    when: faults.When


TROUBLES = {
    "full before a byte is written": Trouble(errno.ENOSPC, ["write"], "before"),
    "full in the middle of a write": Trouble(errno.ENOSPC, ["write"], "half"),
    "an error in the middle of a write": Trouble(errno.EIO, ["write"], "half"),
    "an error after the write was done": Trouble(errno.EIO, ["write"], "after"),
    "an error instead of a sync": Trouble(errno.EIO, ["sync"], "before"),
    "an error after the sync was done": Trouble(errno.EIO, ["sync"], "after"),
    "half a write that cannot be taken back": Trouble(errno.EIO, ["write", "truncate"], "half"),
    "a sync that fails and cannot be taken back": Trouble(errno.EIO, ["sync", "truncate"], "before"),
}


# -- in children --------------------------------------------------------------------------------------


async def _go_through(store: Store, acks: Acks, spoil: Callable[[], None], heal: Callable[[], None]) -> Any:
    """Work, meet the trouble, and go on with the same objects once it is over; what was said meanwhile."""
    errors: list[str] = []
    async with store.session("a") as session, store.session("b") as other:
        await _say(session, acks, "before")
        await _say(other, acks, "before")
        spoil()
        await session.add(MUCH)
        await other.add(MUCH)
        for _ in range(2):
            for one in (session, other):
                errors += await _complain(one.flush)
        heal()
        await session.flush()
        acks.lines(session)
        await _say(session, acks, "after")
        await _say(other, acks, "after")
        return {"errors": errors, "said": _first_words(session)}


def _first_words(session: Session) -> list[str]:
    return [message.text.split()[0] for message in session.transcript]


async def _say(session: Session, acks: Acks, text: str) -> None:
    await session.add(text)
    await session.checkpoint()
    acks.lines(session)


async def _complain(act: Callable[[], Awaitable[object]]) -> list[str]:
    """The error that it raises: one of ours, that says where and what to do."""
    try:
        await act()
    except StoreFailed as error:
        return [str(error)]
    return []


async def _open_and_go_through(
    url: str, acks: str, spoil: Callable[[], None], heal: Callable[[], None]
) -> Any:
    driver = await anyio.to_thread.run_sync(open_driver, url)
    async with open_store(driver) as store:
        return await _go_through(store, Acks(Path(acks)), spoil, heal)


def go_through_trouble(line: Line, url: str, acks: str, name: str) -> Any:
    """With a disk that fails as it is told to."""
    disk, trouble = faults.install(), TROUBLES[name]
    path = JOURNALS[url.partition(":")[0]]

    def spoil() -> None:
        disk.fail(trouble.error, *trouble.kinds, when=trouble.when, path=path)

    return anyio.run(_open_and_go_through, url, acks, spoil, disk.heal)


def die_in_trouble(line: Line, url: str, acks: str, name: str) -> Any:
    """The same, but it ends while the disk is bad, without a word."""

    def die() -> None:
        line.say("in trouble")
        line.hear()

    disk, trouble = faults.install(), TROUBLES[name]
    path = JOURNALS[url.partition(":")[0]]

    def spoil() -> None:
        disk.fail(trouble.error, *trouble.kinds, when=trouble.when, path=path)

    return anyio.run(_open_and_go_through, url, acks, spoil, die)


def go_through_a_limit(line: Line, url: str, acks: str) -> Any:
    """A limit on the size of files, which the kernel enforces."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def spoil() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))

    return anyio.run(
        _open_and_go_through,
        url,
        acks,
        spoil,
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before),
    )


def go_through_a_full_disk(line: Line, url: str, acks: str, ballast: str) -> Any:
    """A file system that is really full, until something is removed from it."""

    def spoil() -> None:
        with open(ballast, "wb", buffering=0) as file:
            with suppress(OSError):
                while True:
                    file.write(b"\0" * 4096)

    return anyio.run(_open_and_go_through, url, acks, spoil, lambda: os.unlink(ballast))


# -- tests --------------------------------------------------------------------------------------------


def _expect_recovery(warm: Warm, url: str, acks: str, found: Any) -> None:
    assert found["said"] == ["before", "during", "after"]
    assert warm.call(look, url, acks) == []
    assert warm.call(read_texts, url) == {
        "a": ["before", "during", "after"],
        "b": ["before", "during", "after"],
    }


def read_texts(line: Line, url: str) -> dict[str, list[str]]:
    """What is said in each session, seen by somebody who just came and goes on."""
    return anyio.run(_read_texts, url)


async def _read_texts(url: str) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    driver = await anyio.to_thread.run_sync(open_driver, url)
    async with open_store(driver) as store:
        async for head in store.sessions():
            async with store.session(head.session) as session:
                texts[head.session] = _first_words(session)
                await session.add("and on")
                await session.checkpoint()
    return texts


@pytest.mark.parametrize("name", TROUBLES)
@on_files
def test_a_bad_disk_is_one_clear_error_and_then_over(
    warm: Warm, url: str, quick_path: Path, name: str
) -> None:
    """Full, or failing before, in or after a write or a sync: `StoreFailed`, and once the cause is gone the
    same session goes on with `flush()`. Every line is there once."""
    acks = str(quick_path / "acks")
    found = warm.call(go_through_trouble, url, acks, name)
    assert found["errors"], "nobody was told"
    for error in found["errors"]:
        assert str(quick_path) in error
        assert "the driver failed" not in error, "it came out of the driver untranslated"
    _expect_recovery(warm, url, acks, found)


@pytest.mark.parametrize("name", TROUBLES)
@on_files
def test_dying_with_a_bad_disk_loses_nothing(warm: Warm, url: str, quick_path: Path, name: str) -> None:
    """What was acknowledged before is there; what was not is there whole, once, or not at all."""
    acks = str(quick_path / "acks")
    with warm.child(die_in_trouble, url, acks, name) as child:
        assert child.hear() == "in trouble"
    assert warm.call(look, url, acks) == []
    texts = warm.call(read_texts, url)
    assert set(texts) == {"a", "b"}
    for said in texts.values():
        assert said in (["before"], ["before", "during"])


def leave_in_trouble(line: Line, url: str) -> list[str]:
    """The disk is bad when session and store are closed; the errors."""
    return anyio.run(_leave_in_trouble, url, faults.install())


async def _leave_in_trouble(url: str, disk: faults.Disk) -> list[str]:
    driver = await anyio.to_thread.run_sync(open_driver, url)
    async with open_store(driver, lease_s=60) as store:
        session = await store.session("a").__aenter__()
        await session.add("before")
        await session.flush()
        disk.fail(errno.EIO, "write", "sync", "rename", "unlink", path="store")
        return await _complain(lambda: session.__aexit__(None, None, None))


@on_files
def test_who_could_not_say_goodbye_is_found_dead_at_once(warm: Warm, url: str) -> None:
    """Neither the lease nor the heartbeat could be taken back: the lock tells, as after a kill."""
    assert warm.call(leave_in_trouble, url)
    assert warm.call(read_texts, url) == {"a": ["before"]}


def fill_the_log(line: Line, url: str) -> list[int]:
    """Commit while the file cannot grow, and once it can; how much file and log have grown after each."""
    path = Path(url.partition(":")[2])
    log = path.with_name("store-wal")
    author = Author("a")
    driver = open_driver(url)
    author.begin(driver)
    _commit_much(author, driver, 70)
    driver.close()
    found = [path.stat().st_size]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    driver = open_driver(url)
    for limit in (found[0], before[0]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        _commit_much(author, driver, 50)
        found += [path.stat().st_size, log.stat().st_size]
    assert read_all(driver, "a") == author.page
    driver.close()
    return found


def _commit_much(author: Author, driver: Driver, times: int) -> None:
    for _ in range(times):
        author.commit(driver, say(MUCH * 5))


def test_a_log_that_cannot_be_folded_fails_no_commit(warm: Warm, quick_path: Path) -> None:
    """On SQLite: what is in the log has landed. It is folded into the file as soon as that works."""
    file, file_limited, log_limited, file_freed, log_freed = warm.call(
        fill_the_log, f"sqlite:{quick_path}/store"
    )
    assert file == file_limited < file_freed
    assert log_limited > 17_000_000, "it was not due"
    assert log_freed < log_limited + 1_000_000, "it was folded too late"


@on_files
def test_a_limit_on_file_sizes_is_one_clear_error_and_then_over(
    warm: Warm, url: str, quick_path: Path
) -> None:
    """The same with an error that the kernel gives."""
    acks = str(quick_path / "acks")
    found = warm.call(go_through_a_limit, url, acks)
    assert found["errors"]
    _expect_recovery(warm, url, acks, found)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@on_files
def test_a_full_disk_is_one_clear_error_and_then_over(warm: Warm, scheme: str, quick_path: Path) -> None:
    """The same on a file system that is really full."""
    small = quick_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        url, acks = f"{scheme}:{small}/store", str(quick_path / "acks")
        found = warm.call(go_through_a_full_disk, url, acks, str(small / "ballast"))
        assert any("full" in error or "No space" in error for error in found["errors"]), found["errors"]
        _expect_recovery(warm, url, acks, found)
    finally:
        subprocess.run(["umount", str(small)], check=True)


# -- commits that land and fail -----------------------------------------------------------------------


class LandingDriver:
    """Commits and claims, and says all the same that it failed, as often as it is told to."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.failures = 0
        self.batches: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        self.batches.append([item.session for item in batch])
        outcomes = self._driver.commit(batch, wait=wait)
        self._fail()
        return outcomes

    def claim(self, change: ClaimChange) -> Outcome:
        outcome = self._driver.claim(change)
        self._fail()
        return outcome

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreFailed("the connection was lost, the commit was not")


@pytest.fixture(params=["memory", "dir", "sqlite", "postgresql"])
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Every driver."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres")
    driver = MemoryDriver() if request.param == "memory" else open_driver(f"{request.param}:{tmp_path}/store")
    return LandingDriver(driver)


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_a_commit_that_landed_and_failed_is_settled_without_duplicates(
    landing: Any, failures: int
) -> None:
    """However often it is told that it failed, each line is there once."""
    async with open_store(landing) as store:
        async with store.session("a") as session:
            await session.add("before")
            await session.checkpoint()
            await session.add("during")
            landing.failures = failures
            # The committer tries twice before it says that it failed.
            for _ in range(2):
                await _complain(session.flush)
            landing.failures = 0
            await session.flush()
            await session.add("after")
            await session.checkpoint()
            assert not session.is_lost
        state = await store.load("a")
        assert [message.text for message in state.transcript] == ["before", "during", "after"]


async def test_who_left_in_trouble_and_came_back_shares_no_commit_with_what_is_left(landing: Any) -> None:
    """The lines that failed are tried again, but never beside those of the session opened anew."""
    async with open_store(landing) as store:
        session = await store.session("a").__aenter__()
        await session.add("before")
        landing.failures = 4
        assert await _complain(lambda: session.__aexit__(None, None, None))
        landing.failures = 0
        async with store.session("a") as session:
            for number in range(3):
                await session.add(f"after {number}")
                await session.checkpoint()
        state = await store.load("a")
        said = [message.text for message in state.transcript]
        assert said == ["before", "after 0", "after 1", "after 2"]
    assert all(len(set(batch)) == len(batch) for batch in landing.batches)


async def test_a_lease_whose_taking_landed_and_failed_is_taken_again(landing: Any) -> None:
    """The process finds its own leftover, and nobody has to wait."""
    async with open_store(landing) as store:
        async with store.session("a") as session:
            await session.add("before")
        for failures in (1, 2):
            landing.failures = failures
            await _complain(lambda: _open_and_close(store))
            landing.failures = 0
            async with store.session("a") as session:
                await session.add("again")
        assert len((await store.load("a")).transcript) == 3


async def _open_and_close(store: Store) -> None:
    async with store.session("a"):
        pass


async def test_a_fork_that_landed_and_failed_is_there_once(landing: Any) -> None:
    """It is tried again under its own name, and finds itself."""
    async with open_store(landing) as store:
        async with store.session("a") as session:
            await session.add("before")
            await session.checkpoint()
        landing.failures = 1
        assert await store.fork("a", into="b") == "b"
        assert [head.session async for head in store.sessions()] == ["a", "b"]


async def test_a_resource_whose_taking_landed_and_failed_is_taken_again(landing: Any) -> None:
    """Nobody has it, though its record says that this process does; the same after giving it back failed."""
    async with open_store(landing) as store, store.session("a") as session:
        landing.failures = 1
        with pytest.raises(StoreFailed):
            async with session.hold("printer"):
                pass
        async with session.hold("printer") as held:
            fence = held.fence
            with pytest.raises(LeaseHeld):
                async with session.hold("printer"):
                    pass
        with pytest.raises(StoreFailed):
            async with session.hold("printer"):
                landing.failures = 1
        async with session.hold("printer") as held:
            assert held.fence > fence
            await held.check()


async def test_a_session_that_cannot_be_left_cleanly_can_be_opened_again(landing: Any) -> None:
    """The lease could not be given back; it is this process's own, so it is no obstacle."""
    async with open_store(landing) as store:
        session = await store.session("a").__aenter__()
        await session.add("before")
        await session.flush()
        landing.failures = 100
        with pytest.raises(StoreFailed):
            await session.__aexit__(None, None, None)
        landing.failures = 0
        async with store.session("a") as session:
            await session.add("after")
        assert len((await store.load("a")).transcript) == 2

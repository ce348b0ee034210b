"""Blobs that nobody refers to are collected, and no others."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from holdfast import Store, open_store
from holdfast.blobs.home import BlobContext, ListedBlob
from holdfast.content.lazy import BlobMedia
from holdfast.core.codec import Page
from holdfast.core.entries import AdapterBody
from holdfast.drivers.contract import HeadFilter, InboxRow, Tip
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput, Corrupt, NewerFormat, StoreFailed
from holdfast.ids import SessionId
from holdfast.limits import BLOB_KNOWN_S
from holdfast.messages import AnyMessage, Media, Message
from holdfast.store.blob_gc import References
from holdfast.store.blob_gc import collect as collect_now
from holdfast.system.clock import boot_s, utc_now
from tests.internals import engine_of, writer_of
from tests.session.example_sessions import StoreUrl, collect


def image(number: int) -> bytes:
    return bytes([number]) * 70_000


def showing(number: int) -> Message:
    return Message(role="user", blocks=(Media(media_type="image/png", data=image(number)),))


def digests(*numbers: int) -> set[str]:
    return {hashlib.sha256(image(number)).hexdigest() for number in numbers}


async def left(store: Store) -> set[str]:
    return {blob.digest for blob in await collect(store.blobs())}


async def sweep(store: Store) -> set[str]:
    """Collect as if nobody else were there; what went."""
    found = await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
    return {blob.digest for blob in found.orphans}


async def test_what_nobody_refers_to_goes_and_the_rest_stays(store_url: StoreUrl) -> None:
    """Messages, state, earlier versions, what a rewind left behind, inboxes, forks of deleted sessions."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(showing(1))
            await session.set("photo", image(2))
            first = await session.checkpoint()
            await session.add(showing(3))
            await session.set("photo", image(4))
            await session.checkpoint()
            await session.rewind(version=first)
        async with store.session("origin") as session:
            await session.add(showing(5))
            await session.checkpoint()
            await session.add(showing(6))
            await session.checkpoint()
        await store.fork("origin", version=1, into="fork")
        await store.fork("fork", into="fork-of-fork")
        await store.delete("origin")
        await store.delete("fork")
        await store.submit("s", showing(7))
        await store.put_blob(image(8))
        dry = await store.collect_blobs(grace_s=0, alone=True)
        assert {blob.digest for blob in dry.orphans} == digests(6, 8)
        assert (dry.removed, dry.size, dry.referred) == (False, 140_000, 6)
        assert await left(store) == digests(1, 2, 3, 4, 5, 6, 7, 8)
        assert await sweep(store) == digests(6, 8)
        assert await left(store) == digests(1, 2, 3, 4, 5, 7)
        async with store.session("s") as session:
            assert first_media(session.transcript[1]).data == image(7)
        fork = await store.load("fork-of-fork")
        assert first_media(fork.transcript[0]).data == image(5)
        await store.delete("fork-of-fork")
        assert await sweep(store) == digests(5)


async def test_erasing_releases_what_was_said(store_url: StoreUrl) -> None:
    """Blobs of erased messages go; those of a fork, and of values, stay."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(showing(1))
            await session.checkpoint()
            await session.add(showing(2))
            await session.set("photo", image(3))
            await session.checkpoint()
        await store.fork("s", version=1, into="fork")
        await store.clean("s", checkpoints=False)
        assert await sweep(store) == digests(2)
        assert (await store.load("s")).get("photo") == image(3)
        await store.delete("fork")
        await store.clean("s", checkpoints=False)
        assert await sweep(store) == digests(1)


async def test_what_was_put_within_the_grace_stays(store_url: StoreUrl) -> None:
    """The entry that refers to it may be on its way. Putting it again counts."""
    async with open_store(store_url) as store:
        await store.put_blob(image(1))
        found = await store.collect_blobs(dry_run=False)
        assert (found.orphans, found.recent) == ((), 1)
        engine = engine_of(store)
        later = engine.now() + timedelta(days=3)
        engine.now = lambda: later
        assert len((await store.collect_blobs(grace_s=4 * 86400)).orphans) == 0
        assert len((await store.collect_blobs(grace_s=2 * 86400)).orphans) == 1


async def test_what_is_put_between_the_look_and_the_removal_stays(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home looks at the time once more, when it removes."""
    async with open_store(store_url) as store:
        await store.put_blob(image(1))
        home, owner = engine_of(store).home, engine_of(store).driver.store_id()
        look = home.list_blobs
        (digest,) = digests(1)

        def look_and_put(after: str | None, limit: int) -> Sequence[ListedBlob]:
            found = look(after, limit)
            home.put(digest, [image(1)], BlobContext(), owner=owner)
            return found

        monkeypatch.setattr(home, "list_blobs", look_and_put)
        found = await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
        assert (found.orphans, found.recent) == ((), 1)


async def test_what_a_process_put_long_ago_it_puts_again(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last put counts when blobs are collected, so nobody relies on an old one."""
    async with open_store(store_url) as store:
        now_s = boot_s()
        monkeypatch.setattr("holdfast.engine.blob_cache.boot_s", lambda: now_s)
        put_at: list[datetime] = []
        for later_s in (0.0, 0.0, BLOB_KNOWN_S + 1):
            now_s += later_s
            await store.put_blob(image(1))
            put_at += [blob.put_at async for blob in store.blobs() if blob.put_at is not None]
        first, again, last = put_at
        assert first == again
        assert first < last


async def test_what_could_not_be_put_is_not_taken_for_put(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries again stores it, and only then is there an entry that refers to it."""

    def fail(*_: object, **__: object) -> None:
        raise StoreFailed("the disk is full")

    async with open_store(store_url) as store, store.session("s") as session:
        with monkeypatch.context() as patch:
            patch.setattr(engine_of(store).home, "put", fail)
            with pytest.raises(StoreFailed, match="the disk is full"):
                await session.add(showing(1))
        await session.add(showing(1))
        assert {blob.digest async for blob in store.blobs()} == digests(1)
        assert len(session.transcript) == 1


async def test_a_short_grace_is_for_who_is_alone(store_url: StoreUrl) -> None:
    """Others rely on what they have just put."""
    async with open_store(store_url) as store:
        with pytest.raises(BadInput, match="too short while others may be writing"):
            await store.collect_blobs(grace_s=60)
        with pytest.raises(BadInput, match="negative"):
            await store.collect_blobs(grace_s=-1, alone=True)
        async with store.session("s"):
            with pytest.raises(BadInput, match="not alone: s is open"):
                await store.collect_blobs(grace_s=60, alone=True)


async def test_another_stores_home_is_left_alone(tmp_path: Path) -> None:
    """Only its own store knows what is needed."""
    shared = f"dir:{tmp_path}/blobs"
    async with open_store(f"sqlite:{tmp_path}/a.db", blobs=shared) as store, store.session("s") as session:
        await session.add(showing(1))
    async with open_store(f"sqlite:{tmp_path}/b.db", blobs=shared) as store:
        with pytest.raises(BadInput, match="another store's blobs"):
            await store.collect_blobs()
    async with open_store(f"sqlite:{tmp_path}/a.db", blobs=shared) as store:
        assert await left(store) == digests(1)
        await store.delete("s")
        assert await sweep(store) == digests(1)


def _change_chunks(path: Path, part: str, change: Callable[[str], str]) -> None:
    """Change the chunk in which something was said."""
    with sqlite3.connect(path) as db:
        query = f"SELECT rowid, {part} FROM chunks WHERE said LIKE '%Hello%'"
        for row, text in db.execute(query).fetchall():
            db.execute(f"UPDATE chunks SET {part} = ? WHERE rowid = ?", (change(text), row))
    db.close()


@pytest.mark.parametrize(
    ("part", "change", "error"),
    [
        ("said", lambda text: text.replace("Hello", "Hallo"), Corrupt),
        ("said", lambda text: text[:-5], Corrupt),
        ("facts", lambda text: text[:-5], Corrupt),
        ("facts", lambda text: text.replace('"v":2', '"v":9'), NewerFormat),
    ],
    ids=["altered", "torn", "torn facts", "newer"],
)
async def test_a_chunk_that_cannot_be_read_stops_it(
    tmp_path: Path, part: str, change: Callable[[str], str], error: type[Exception]
) -> None:
    """Who knows what it refers to."""
    async with open_store(f"sqlite:{tmp_path}/a.db") as store:
        async with store.session("s") as session:
            await session.add("Hello")
        await store.put_blob(image(1))
    await anyio.to_thread.run_sync(_change_chunks, tmp_path / "a.db", part, change)
    async with open_store(f"sqlite:{tmp_path}/a.db") as store:
        with pytest.raises(error):
            await sweep(store)
        assert await left(store) == digests(1)


async def test_references_of_unknown_kinds_count(store_url: StoreUrl) -> None:
    """A newer version knows what they mean."""
    async with open_store(store_url) as store:
        blob = await store.put_blob(image(1))
        async with store.session("s") as session:
            state = session.state
            body = AdapterBody(data={"deep": [{"er": blob.reference}]})
            new = state.append(body, engine_of(store).now(), kind="adapter.later")
            engine_of(store).committer.offer(
                writer_of(session).channel, [new], msgspec.structs.replace(state.facts.head)
            )
            await session.flush()
        assert await sweep(store) == set()
        (listed,) = await collect(store.blobs(sessions=True))
        assert listed.sessions == ("s",)


# -- while others are at work ----------------------------------------------------------------------------


def first_media(message: AnyMessage) -> BlobMedia:
    """What the message begins with."""
    assert isinstance(message, Message)
    media = message.blocks[0]
    assert isinstance(media, BlobMedia)
    return media


class Moving(MemoryDriver):
    """A store in which something happens between two looks of the collector."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], None] | None = None
        self.when = ""

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        found = super().read(session, after, min(limit, 2) if self.when else limit, said=said)
        if self.when == f"read {session}" and after > 0:
            self._go()
        return found

    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        found = super().list_tips(wanted, after, limit)
        if self.when == "list":
            self._go()
        return found

    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        found = super().read_inbox(session, after, limit)
        if self.when == f"inbox {session}":
            self._go()
        return found

    def _go(self) -> None:
        then, self.then, self.when = self.then, None, ""
        if then is not None:
            then()


async def _stocked(driver: Moving) -> None:
    async with open_store(driver) as store:
        async with store.session("z") as session:
            for number in range(1, 6):
                await session.add(showing(number))
                await session.flush()
                await session.checkpoint()
        await store.fork("z", into="m")


async def _collect_while(driver: Moving, when: str, work: Callable[[Store], Awaitable[None]]) -> set[str]:
    """Collect, and at a certain moment let somebody else do something in another thread."""

    def then() -> None:
        async def other() -> None:
            async with open_store(driver) as store:
                await work(store)

        anyio.run(other)

    async with open_store(driver) as store:
        driver.then, driver.when = then, when
        found = await anyio.to_thread.run_sync(
            lambda: collect_now(engine_of(store), grace_s=0, dry_run=False, alone=True)
        )
        return {blob.digest for blob in found.orphans}


@pytest.mark.parametrize("when", ["list", "read z", "read m", "inbox m", "inbox z"])
async def test_a_session_that_is_deleted_meanwhile_leaves_its_forks_whole(when: str) -> None:
    """Its lines move under another name while they are read; and a new fork may stand where nobody looks any
    more."""
    driver = Moving()
    await _stocked(driver)

    async def work(store: Store) -> None:
        await store.fork("m", into="a")
        await store.delete("z")
        await store.delete("m")

    assert await _collect_while(driver, when, work) == set()
    async with open_store(driver) as store:
        state = await store.load("a")
        shown = [first_media(message).data for message in state.transcript]
        assert shown == [image(number) for number in range(1, 6)]


async def test_an_item_that_is_taken_in_meanwhile_is_not_missed() -> None:
    """It moves from the inbox to the journal."""
    driver = Moving()
    await _stocked(driver)
    async with open_store(driver) as store:
        await store.submit("z", showing(9))

    async def take_in(store: Store) -> None:
        async with store.session("z"):
            pass

    assert await _collect_while(driver, "inbox z", take_in) == set()


async def test_who_shows_an_old_blob_while_it_is_collected_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again, a real collector beside real writers: the put counts, or stores the bytes anew."""
    url = f"sqlite:{tmp_path}/store.db"
    rounds = 8

    async def write(name: str) -> None:
        for number in range(rounds):
            # A store of its own each time: nothing is known to be there.
            async with open_store(url) as store, store.session(f"{name}-{number}") as session:
                await session.add(showing(number))
                await session.flush()
                await session.add(showing(number + 100))
            async with open_store(url) as store:
                await store.delete(f"{name}-{number}") if number % 3 == 0 else None

    async def gather(done: anyio.Event) -> None:
        async with open_store(url) as store:
            while not done.is_set():
                # Long enough for a line to follow its blob; the old ones are older than that.
                await engine_of(store).call_home(
                    lambda: collect_now(engine_of(store), grace_s=3600, dry_run=False, alone=True)
                )

    long_ago = utc_now() - timedelta(days=1)
    with monkeypatch.context() as clock:
        clock.setattr("holdfast.drivers.sqlite.blobs.utc_now", lambda: long_ago)
        for number in range(rounds):
            async with open_store(url) as store:
                await store.put_blob(image(number))
    done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gather, done)
        async with anyio.create_task_group() as writers:
            writers.start_soon(write, "a")
            writers.start_soon(write, "b")
        done.set()
    async with open_store(url) as store:
        heads = await collect(store.sessions())
        assert len(heads) == 2 * (rounds - len(range(0, rounds, 3)))
        for head in heads:
            for message in (await store.load(head.session)).transcript:
                data = first_media(message).data
                assert data is not None
                assert len(data) == 70_000


def test_a_collector_reads_each_journal_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks share their history, and so does the work."""

    async def main() -> int:
        driver = MemoryDriver()
        async with open_store(driver) as store:
            async with store.session("s") as session:
                for number in range(50):
                    await session.add(f"{number}")
                    await session.flush()
                await session.checkpoint()
            for number in range(20):
                await store.fork("s", into=f"f{number}")
            reads = 0
            real = driver.read

            def read(session: SessionId, after: int, limit: int, *, said: bool) -> Page:
                nonlocal reads
                found = real(session, after, limit, said=said)
                reads += found.count
                return found

            monkeypatch.setattr(driver, "read", read)
            assert References(engine_of(store)).find().sessions == 21
            return reads

    assert anyio.run(main) < 300

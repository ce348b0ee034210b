"""A server that is reachable and says nothing: an error in time, and a way out of the store.

The limits are made small, and the server is silent for as long as a test likes: a wait without an end meets
the limit of the test.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from psycopg_pool import ConnectionPool

from holdfast import open_store
from holdfast.blobs.home import BlobContext
from holdfast.core.codec import Page
from holdfast.drivers.contract import Done
from holdfast.drivers.postgres import PostgresDriver, connections, statements, work_queue
from holdfast.drivers.postgres.address import parse
from holdfast.errors import StoreBusy, StoreUnreachable
from holdfast.ids import HolderId, SessionId
from holdfast.testing.conformance.author import Author, commit_one, read_all, say
from tests.internals import engine_of
from tests.server import PostgresServer
from tests.stores import connect, drop, schema_of, server_url

from .database_proxy import Send, Wire
from .fork_server import poll


@pytest.fixture
def schema(postgres: str, tmp_path: Path) -> Iterator[str]:
    name = schema_of(tmp_path)
    yield name
    drop([name])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One of this file's own: it is stopped again and again."""
    server = PostgresServer()
    yield server
    server.close()


@contextmanager
def soon() -> Iterator[None]:
    """Notice silence soon. Only for tests with silence: a busy machine is silent now and then, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "ANSWER_S", 0.2)
        patch.setattr(connections, "RECONNECT_S", 0.4)
        patch.setattr(work_queue, "ANSWER_S", 0.2)
        yield


@contextmanager
def busy_soon(busy_s: float = 0.5, cancel_s: float = 60.0) -> Iterator[None]:
    """Wait for locks only shortly, and ask a server soon whether it is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "ANSWER_S", 0.2)
        patch.setattr(connections, "BUSY_S", busy_s)
        patch.setattr(connections, "BUSY_AGAIN_S", 0.3)
        patch.setattr(connections, "CANCEL_S", cancel_s)
        patch.setattr(statements, "BUSY_S", busy_s)
        yield


class _Valve:
    """A way to the server on which nothing arrives while it is closed, in either direction."""

    def __init__(self, server: str | None = None) -> None:
        self._open = threading.Event()
        self._open.set()
        self.wire = Wire(self._pass, self._pass, server=server)

    def _pass(self, piece: bytes, send: Send) -> None:
        self._open.wait()
        send(piece)

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


# -- the server is stopped --------------------------------------------------------------------------------


async def test_a_stopped_server_is_one_clear_error_and_then_over(
    server: PostgresServer, tmp_path: Path
) -> None:
    """For reads and writes. Once the server goes on, so does the session, and each message of the
    meantime is there once."""
    name = schema_of(tmp_path)
    async with open_store(server.url, schema=name) as store, store.session("a") as session:
        await session.add("before")
        await session.flush()
        with soon(), server.frozen():
            await session.add("during")
            with pytest.raises(StoreUnreachable, match=r"does not answer|cannot connect"):
                await session.flush()
            with pytest.raises(StoreUnreachable):
                await store.load("a")
        await session.add("after")
        written = False
        while not written:
            # An attempt that began before fails, since the server was away.
            with suppress(StoreUnreachable):
                await session.flush()
                written = True
        texts = [message.text for message in (await store.load("a")).transcript]
        assert texts == ["before", "during", "after"]


async def test_a_store_whose_server_is_stopped_can_be_left(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries that could not be written are logged as an error, with the session's name."""
    caplog.set_level(logging.ERROR, "holdfast")
    async with open_store(server.url, schema=schema_of(tmp_path)) as store:
        session = store.session("a")
        await session.__aenter__()
        await session.add("before")
        await session.flush()
        with soon(), server.frozen():
            await session.add("lost")
            await store.aclose()
    assert [one for one in caplog.records if "session a: the last entries could not be" in one.getMessage()]


async def test_a_callers_deadline_fires_while_a_server_is_silent(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Whatever it waits for: opening, reading, writing or posting. The limits are the real ones."""
    name = schema_of(tmp_path)
    async with open_store(server.url, schema=name) as store, store.session("a") as session:
        await session.add("before")
        await session.flush()
        with server.frozen():
            await session.add("during")
            other = open_store(server.url, schema=name)
            for work in (
                session.flush,
                lambda: store.load("a"),
                lambda: store.submit("a", "hello"),
                lambda: store.session("b").__aenter__(),
                other.__aenter__,
            ):
                with anyio.move_on_after(0.05) as scope:
                    await work()
                assert scope.cancelled_caught


def test_a_server_whose_backends_are_stopped_is_unreachable(server: PostgresServer, tmp_path: Path) -> None:
    """It accepts new connections and answers on them; cancelling earlier statements has no effect."""
    driver = PostgresDriver(server.url, schema=schema_of(tmp_path))
    author = Author("a")
    author.begin(driver)
    item = author.write(say("once"))
    try:
        with busy_soon(cancel_s=0.3), server.frozen(backends_only=True):
            with pytest.raises(StoreUnreachable, match="does not answer"):
                commit_one(driver, item)
        outcome = commit_one(driver, item)
        assert outcome == Done(0) or getattr(outcome, "sum", "") == item.head.sum
        assert read_all(driver, "a") == Page.of([*author.chunks, *item.chunks], said=True)
    finally:
        driver.close()


# -- something between says nothing --------------------------------------------------------------------


def _works(driver: PostgresDriver, author: Author) -> dict[str, Callable[[], object]]:
    """The calls of a store to its driver."""
    item = author.write(say("hello"))
    return {
        "commit": lambda: driver.commit([item]),
        "post": lambda: driver.post(author.session, b"{}"),
        "beat": lambda: driver.beat(HolderId("h"), b"{}", []),
        "read": lambda: driver.read(author.session, 0, 10, said=True),
        "delete": lambda: driver.delete(author.session, author.sum),
        "put_blob": lambda: driver.blobs.put("0" * 64, [b"x"], BlobContext(), owner="me"),
        "claim": lambda: driver.find_claim("k"),
    }


def test_a_way_to_the_server_that_swallows_everything_is_an_error(schema: str) -> None:
    """As a pooler does that holds its clients back, for every call. Afterwards it works again."""
    valve = _Valve()
    driver = PostgresDriver(f"{valve.wire.url}&schema={schema}")
    author = Author("a")
    author.begin(driver)
    works = _works(driver, author)
    try:
        with soon(), valve.closed(), ThreadPoolExecutor(len(works)) as threads:
            doing = {name: threads.submit(work) for name, work in works.items()}
            for one in doing.values():
                with pytest.raises(StoreUnreachable):
                    one.result()
            driver.wait_for_work(0.01)
        assert driver.find_tip(SessionId("b")) is None
    finally:
        driver.close()


def test_an_applications_pool_is_not_waited_for_without_end(schema: str) -> None:
    """Neither for an answer, nor for one of its connections; it is left as it was."""
    valve = _Valve()
    with ConnectionPool(valve.wire.url, min_size=1, max_size=1, open=True, timeout=600) as pool:
        driver = PostgresDriver(pool, schema=schema)
        author = Author("a")
        author.begin(driver)
        with soon(), pool.connection(), pytest.raises(StoreUnreachable, match="gave no connection"):
            driver.find_tip(author.session)
        with soon(), valve.closed(), pytest.raises(StoreUnreachable, match="does not answer"):
            driver.find_tip(author.session)
        poll(lambda: _is_answered(pool), "the pool to have another connection")
        assert driver.find_tip(author.session) is not None
        driver.close()
        with pool.connection() as connection:
            assert "wait" not in vars(connection)


def _is_answered(pool: ConnectionPool[Any]) -> bool:
    with pool.connection() as connection:
        return connection.execute("SELECT 1").fetchone() is not None


# -- an outsider holds a lock --------------------------------------------------------------------------


@pytest.mark.parametrize("work", ["commit", "post", "read", "delete"])
def test_a_lock_that_an_outsider_keeps_is_an_error_in_time(work: str, schema: str) -> None:
    """Nothing is left waiting on the server, and nothing was written. Once it is free, all is well."""
    driver = PostgresDriver(server_url(schema))
    author = Author("a")
    author.begin(driver)
    item = author.write(say("hello"))
    try:
        with connect() as locker, locker.transaction():
            locker.execute(f"LOCK TABLE {schema}.sessions, {schema}.chunks".encode())
            for _ in range(2):
                with busy_soon(), pytest.raises(StoreBusy, match="idle in transaction"):
                    _works(driver, author)[work]()
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
            assert locker.execute(waiting, (f"{schema}.sessions",)).fetchall() == []
        assert driver.read_inbox(author.session, 0, 10) == []
        assert commit_one(driver, item) == Done(0)
        assert read_all(driver, "a") == Page.of([*author.chunks, *item.chunks], said=True)
    finally:
        driver.close()


async def test_many_sessions_do_not_wait_for_a_lock_one_after_the_other(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that reaches its limit has waited for all: the others have the short limit."""
    limits: list[float] = []
    # Watched: how long a statement may wait is seen otherwise only by waiting that long.
    limit_s = connections.PostgresConnections._limit_s

    def note(self: connections.PostgresConnections, patient: bool) -> float:
        limits.append(limit_s(self, patient))
        return limits[-1]

    driver = PostgresDriver(server_url(schema))
    authors = [Author(f"s{number}") for number in range(4)]
    for author in authors:
        author.begin(driver)
    monkeypatch.setattr(connections.PostgresConnections, "_limit_s", note)
    async with open_store(driver) as store:
        with connect() as locker, locker.transaction():
            locker.execute(f"LOCK TABLE {schema}.chunks".encode())
            items = [author.write(say("hello")) for author in authors]
            # All in one batch, as it is in a store that is busy; through sessions, chance would split it.
            commit = partial(engine_of(store).committer._commit, items)
            with busy_soon(busy_s=2.0):
                outcomes = await anyio.to_thread.run_sync(commit)
        assert all(isinstance(one, StoreBusy) for one in outcomes)
        assert limits == [2.0, *[0.3] * len(items)]


def test_a_statement_that_takes_its_time_is_waited_for(schema: str) -> None:
    """The server is silent for long, but there: it works, or waits for a lock that is soon free."""
    driver = PostgresDriver(server_url(schema))
    author = Author("a")
    author.begin(driver)
    asked = threading.Event()
    server_answers = connections._server_answers  # Watched: a probe leaves no other trace.

    def ask(*given: Any) -> bool:
        asked.set()
        return server_answers(*given)

    try:
        with pytest.MonkeyPatch.context() as patch, connect() as locker, ThreadPoolExecutor(1) as threads:
            patch.setattr(connections, "_server_answers", ask)
            patch.setattr(connections, "ANSWER_S", 0.2)
            with locker.transaction():
                locker.execute(f"LOCK TABLE {schema}.sessions".encode())
                reading = threads.submit(driver.find_tip, SessionId("a"))
                assert asked.wait(60)
            assert reading.result(60) is not None
    finally:
        driver.close()


def test_a_probe_that_is_refused_is_an_answer(server: PostgresServer) -> None:
    """A server without room for another connection is there."""
    with psycopg.connect(server.url) as first:
        source = connections.OwnConnections(parse(f"{server.url}&dbname=none"))
        assert connections._server_answers(source, first)

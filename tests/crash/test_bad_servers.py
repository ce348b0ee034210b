"""The server, or the way to it, fails in the middle of a commit: nothing is lost, doubled or misreported."""

import errno
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from holdfast import open_store
from holdfast.core.codec import Page
from holdfast.core.pages import open_page
from holdfast.drivers.contract import Done
from holdfast.drivers.postgres import PostgresDriver, connections
from holdfast.errors import StoreFailed, StoreUnreachable
from holdfast.testing.conformance.author import Author, commit_one, read_all, say
from tests.server import PostgresServer
from tests.stores import connect, drop, open_driver, schema_of, server_url

from . import faults
from .acknowledged import Acks
from .database_proxy import Send, Wire
from .fork_server import Line, Warm, poll
from .writers import look

WHENS: tuple[faults.When, ...] = ("before", "half", "after")


@pytest.fixture
def schema(postgres: str, tmp_path: Path) -> Iterator[str]:
    name = schema_of(tmp_path)
    yield name
    drop([name])


def _through(wire: Wire, schema: str) -> PostgresDriver:
    return PostgresDriver(f"{wire.url}&schema={schema}")


# -- the connection -----------------------------------------------------------------------------------


def speak_over_a_bad_line(line: Line, url: str, acks: str, rounds: int) -> int:
    """Cut the connection before, in and after each message, without an error for the caller; how often."""
    return anyio.run(_speak_over_a_bad_line, faults.install(), url, Acks(Path(acks)), rounds)


async def _speak_over_a_bad_line(disk: faults.Disk, url: str, acks: Acks, rounds: int) -> int:
    cuts = 0

    def cut(when: faults.When, times: int) -> None:
        def rule(event: faults.Event) -> faults.Fail | None:
            nonlocal cuts, times
            if event.path != "the server" or not times:
                return None
            times -= 1
            cuts += 1
            return faults.Fail(errno.EIO, when)

        disk.rule = rule

    driver = await anyio.to_thread.run_sync(open_driver, url)
    async with open_store(driver) as store, store.session("a") as session, store.session("b") as other:
        for number in range(rounds):
            for when in WHENS:
                # Also when it greets the server again.
                cut(when, 1 + number % 2)
                for one in (session, other):
                    await one.add(f"{number} {when}")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.checkpoint)
                    tasks.start_soon(other.checkpoint)
                disk.heal()
                acks.lines(session)
                acks.lines(other)
    return cuts


def test_a_connection_that_is_cut_in_a_commit_is_no_error(
    warm: Warm, postgres: str, quick_path: Path
) -> None:
    """Before the statement, in the middle of it, or before its answer: the driver sends it again.
    Every entry is there, once."""
    url, acks = f"postgresql:{quick_path}/store", str(quick_path / "acks")
    assert warm.call(speak_over_a_bad_line, url, acks, 5) >= 15
    assert warm.call(look, url, acks) == []
    driver = open_driver(url)
    try:
        for name in ("a", "b"):
            kinds = [entry.kind for entry in open_page(read_all(driver, name), name)]
            assert kinds.count("message.added") == 15
            assert kinds.count("checkpoint.taken") == 15
    finally:
        driver.close()


def _count_waiting(schema: str) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    with connect() as connection:
        row: Any = connection.execute(query, (f"%{schema}%",)).fetchone()
    return int(row[0])


@pytest.mark.parametrize("begins", [False, True])
def test_a_commit_that_is_still_under_way_on_the_server_lands_once(schema: str, begins: bool) -> None:
    """The connection is lost while the server works on the commit, which goes on all the same. The one that
    is sent again waits for it, and finds it there."""
    wire = Wire(lambda piece, send: send(piece))
    driver = _through(wire, schema)
    author = Author("a")
    author.begin(driver)
    item = Author("b").opening(say("first")) if begins else author.write(say("under way"))
    table = "sessions" if not begins else "chunks"
    try:
        with connect() as locker, ThreadPoolExecutor(1) as threads:
            with locker.transaction():
                locker.execute(f"LOCK TABLE {schema}.{table} IN SHARE MODE".encode())
                committing = threads.submit(commit_one, driver, item)
                poll(lambda: _count_waiting(schema) == 1, "the commit to wait")
                wire.cut()
                poll(lambda: _count_waiting(schema) == 2, "the same commit to wait once more")
            assert committing.result(30) == Done(0)
        chunks = [*author.chunks, *item.chunks] if not begins else item.chunks
        assert read_all(driver, item.session) == Page.of(chunks, said=True)
    finally:
        driver.close()


def test_a_post_over_a_lost_connection_is_an_error_in_doubt(schema: str) -> None:
    """A post is not repeated: it could arrive twice."""
    swallow = False

    def answer(piece: bytes, send: Send) -> None:
        if swallow:
            raise OSError(errno.EIO, "cut")
        send(piece)

    driver = _through(Wire(lambda piece, send: send(piece), answer), schema)
    author = Author("a")
    author.begin(driver)
    try:
        swallow = True
        with pytest.raises(StoreUnreachable, match="connection to the server was lost"):
            driver.post(author.session, b'"once"')
        swallow = False
        poll(lambda: len(driver.read_inbox(author.session, 0, 10)) == 1, "the item, which had arrived")
        assert driver.post(author.session, b'"twice"') == 2
    finally:
        driver.close()


def test_connections_that_died_while_idle_are_replaced(schema: str) -> None:
    """For every call, also one that cannot be repeated: nothing was sent over them."""
    driver = PostgresDriver(server_url(schema) + "&application_name=doomed")
    author = Author("a")
    author.begin(driver)
    try:
        for number in range(1, 6):
            with connect() as connection:
                doomed = "FROM pg_stat_activity WHERE application_name = 'doomed'"
                connection.execute(f"SELECT pg_terminate_backend(pid, 10000) {doomed}".encode())
            assert driver.post(author.session, b"{}") == number
    finally:
        driver.close()


def test_a_commit_is_one_round_trip(schema: str) -> None:
    """Everything of a batch is sent at once, and answered at once."""
    turns: list[str] = []

    def turn(who: str) -> Callable[[bytes, Send], None]:
        def passing(piece: bytes, send: Send) -> None:
            # What is long comes in several pieces.
            if turns[-1:] != [who]:
                turns.append(who)
            send(piece)

        return passing

    driver = _through(Wire(turn("asked"), turn("answered")), schema)
    authors = [Author(f"s{number}") for number in range(20)]
    try:
        items = [author.opening(say("hello"), keyframe=b"{}") for author in authors]
        for _ in range(3):
            turns.clear()
            assert list(driver.commit(items)) == [Done(0)] * len(items)
            assert turns == ["asked", "answered"]
            for author, item in zip(authors, items, strict=True):
                author.accept(item)
            items = [author.write(say("more"), say("and more")) for author in authors]
    finally:
        driver.close()


# -- the server ---------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT])
async def test_a_restart_of_the_server_is_waited_for(server: PostgresServer, how: signal.Signals) -> None:
    """Crashed or shut down: calls wait meanwhile, and raise nothing."""

    def restart() -> None:
        server.stop(how)
        time.sleep(0.3)
        server.start()

    async with open_store(server.url) as store, store.session("a") as session:
        for number in range(3):
            await session.add(f"{number}")
            restarting = threading.Thread(target=restart)
            restarting.start()
            while restarting.is_alive():
                await session.add("and on")
                await session.checkpoint()
            restarting.join()
        expected = len(session.transcript)
    async with open_store(server.url) as store:
        assert len((await store.load("a")).transcript) == expected


async def test_a_server_that_stays_away_is_one_clear_error_and_then_over(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is back, the same session goes on, and what was said meanwhile is there."""
    monkeypatch.setattr(connections, "RECONNECT_S", 0.3)
    async with open_store(server.url) as store, store.session("a") as session:
        await session.add("before")
        await session.flush()
        await anyio.to_thread.run_sync(server.stop)
        await session.add("during")
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match="cannot connect"):
                await session.flush()
        await anyio.to_thread.run_sync(server.start)
        await session.add("after")
        await session.flush()
    async with open_store(server.url) as store:
        texts = [message.text for message in (await store.load("a")).transcript]
        assert texts == ["before", "during", "after"]


def test_a_server_whose_disk_is_full_is_one_clear_error_and_then_over(schema: str) -> None:
    """What was acknowledged is there; once there is room, it goes on."""
    driver = PostgresDriver(server_url(schema))
    author = Author("a")
    author.begin(driver)
    try:
        with connect() as connection:
            # In the server's own words.
            say_so = "LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$"
            connection.execute(f"CREATE FUNCTION {schema}.full_disk() RETURNS trigger {say_so}".encode())
            spoil = f"BEFORE INSERT ON {schema}.chunks EXECUTE FUNCTION {schema}.full_disk()"
            connection.execute(f"CREATE TRIGGER full_disk {spoil}".encode())
            with pytest.raises(StoreFailed, match="disk is full"):
                commit_one(driver, author.write(say("too much")))
            connection.execute(f"DROP TRIGGER full_disk ON {schema}.chunks".encode())
        author.commit(driver, say("enough"))
        assert read_all(driver, "a") == Page.of(author.chunks, said=True)
    finally:
        driver.close()

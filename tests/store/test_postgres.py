"""What is particular to PostgreSQL: schemas, rights, pools, poolers, clocks, and error texts."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import holdfast
from holdfast import HoldfastError
from holdfast.blobs.home import BlobContext
from holdfast.core.codec import VERSION, Page
from holdfast.core.entries import RunCompleted, RunStarted
from holdfast.drivers.contract import ClaimChange, Done, HeadFilter
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.postgres.schema import migrations
from holdfast.drivers.postgres.work_queue import channel_of
from holdfast.errors import BadInput, BadUrl, NewerFormat, NotFound, StoreFailed, StoreUnreachable
from holdfast.ids import HolderId, SessionId
from holdfast.limits import BLOB_PART_BYTES
from holdfast.testing.conformance.author import Author, read_all, say
from tests.internals import borrow_connection
from tests.server import PostgresServer
from tests.stores import connect, drop, rows, schema_of, server_url


@pytest.fixture
def driver(schema: str) -> Iterator[PostgresDriver]:
    """An open store."""
    driver = PostgresDriver(server_url(schema))
    yield driver
    driver.close()


# -- the schema ---------------------------------------------------------------------------------------


def test_the_schema_is_made_once(schema: str) -> None:
    """Eight threads open it at once; opening it again changes neither the version nor the store's id."""
    ready = threading.Barrier(8)

    def make() -> str:
        ready.wait()
        driver = PostgresDriver(server_url(schema))
        driver.close()
        return driver.store_id()

    with ThreadPoolExecutor(8) as threads:
        ids = {made.result() for made in [threads.submit(make) for _ in range(8)]}
    assert rows(schema, "SELECT id, format, version FROM store") == [(*ids, VERSION, len(migrations()))]


_MIGRATE = """
import sys
from holdfast.drivers.postgres import PostgresDriver, schema
from holdfast.testing.conformance.author import Author, say

url, name, script = sys.argv[1:]
first = schema.migrations
schema.migrations = lambda: [*first(), script]
print("ready", flush=True)
sys.stdin.readline()
driver = PostgresDriver(url)
Author(name).begin(driver, say("hello"))
print(driver.store_id())
driver.close()
"""
_SECOND = """
CREATE TABLE second AS SELECT count(*) AS sessions FROM sessions;
ALTER TABLE sessions ADD COLUMN note text;
"""


def test_an_older_schema_is_brought_up_to_date_once_by_many_processes(
    driver: PostgresDriver, schema: str
) -> None:
    """Four processes with a second script open it at the same moment, and a process without it goes on
    writing. What is in it stays; the older version cannot open it any more."""
    author = Author("before")
    author.begin(driver)
    command = [sys.executable, "-c", _MIGRATE, server_url(schema)]
    started = [
        subprocess.Popen([*command, f"s{number}", _SECOND], stdin=PIPE, stdout=PIPE, text=True)
        for number in range(4)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        while any(process.poll() is None for process in started):
            author.commit(driver, say("hello"))
        answers = [process.communicate()[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    author.commit(driver, say("and on"))
    assert answers == [f"{driver.store_id()}\n"] * 4
    assert rows(schema, "SELECT format, version FROM store") == [(VERSION, len(migrations()) + 1)]
    assert rows(schema, "SELECT count(*) FROM second") == [(1,)]
    assert rows(schema, "SELECT session, note FROM sessions ORDER BY session") == [
        (name, None) for name in ("before", "s0", "s1", "s2", "s3")
    ]
    assert read_all(driver, "before") == Page.of(author.chunks, said=True)
    with pytest.raises(NewerFormat, match=rf"version {len(migrations()) + 1}.*Upgrade"):
        PostgresDriver(server_url(schema))


@pytest.mark.parametrize("create", [True, False])
def test_a_schema_of_the_first_format_is_refused(schema: str, create: bool) -> None:
    """Only development versions wrote it. The error says what to do; nothing is changed."""
    with connect() as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        connection.execute("CREATE TABLE store (id text NOT NULL, version bigint NOT NULL)")
        connection.execute("INSERT INTO store VALUES ('first', 2)")
    with pytest.raises(
        BadUrl, match=r"format 1, .*reads format 2.*another schema.*the version that wrote it"
    ):
        PostgresDriver(server_url(schema), create=create)
    assert rows(schema, "SELECT * FROM store") == [("first", 2)]
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
    assert rows(schema, tables) == [("store",)]


def test_a_commit_never_reads_all_sessions(schema: str) -> None:
    """Not even where they are so few that it would be quicker: the plan is kept while they become many."""
    driver = PostgresDriver(server_url(schema))
    try:
        authors = [Author(f"s{number}") for number in range(3)]
        for author in authors:
            author.begin(driver, claims=[ClaimChange(key=author.session, expect=None, record="r")])
        for _ in range(20):
            for author in authors:
                author.commit(driver, say("hello"))
            batch = [author.write(say("one"), RunStarted(), run=f"r{author.seq}") for author in authors]
            assert driver.commit(batch) == [Done(0)] * 3
            for author, item in zip(authors, batch, strict=True):
                author.accept(item)
    finally:
        driver.close()
    # A connection's counts are there when the server has seen that it is closed. Making indexes counts, too.
    while rows(schema, f"SELECT n_tup_ins >= 120 {_COUNTS} AND relname = 'chunks'") != [(True,)]:
        time.sleep(0.01)
    assert rows(schema, f"SELECT relname {_COUNTS} AND seq_scan >= 20") == []


_COUNTS = "FROM pg_stat_user_tables WHERE schemaname = current_schema()"


def test_a_schema_can_be_renamed(schema: str) -> None:
    """What is in it goes along, and another store may take the old name."""
    first = PostgresDriver(server_url(schema))
    author = Author("a")
    author.begin(first)
    first.close()
    with connect() as connection:
        names = sql.Identifier(schema), sql.Identifier(f"{schema}_2")
        connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(*names))
    try:
        other, renamed = PostgresDriver(server_url(schema)), PostgresDriver(server_url(f"{schema}_2"))
        author.commit(renamed, say("hello"))
        Author("b").begin(renamed)
        assert len(read_all(renamed, "a")) == 2
        assert other.find_tip(SessionId("b")) is None
        other.close()
        renamed.close()
    finally:
        drop([f"{schema}_2"])


def test_temporary_tables_of_the_application_are_not_used(pool: ConnectionPool[Any], schema: str) -> None:
    """Whatever they are called."""
    driver = PostgresDriver(pool, schema=schema)
    with pool.connection() as connection:
        connection.execute("CREATE TEMPORARY TABLE chunks (mine text)")
        connection.execute("CREATE TEMPORARY TABLE sessions (mine text)")
    author = Author("a")
    author.begin(driver)
    author.commit(driver, say("hello"))
    assert len(read_all(driver, "a")) == 2
    with pool.connection() as connection:
        assert connection.execute("SELECT count(*) FROM pg_temp.chunks").fetchone() == (0,)
    driver.close()


def test_a_claim_that_came_meanwhile_stays(driver: PostgresDriver, schema: str) -> None:
    """A commit that frees a free claim frees nothing, even if another process takes it while the commit
    waits."""
    author = Author("a")
    author.begin(driver)
    item = author.write(say("hello"), claims=[ClaimChange(key="k", expect=None, record=None)])
    with connect() as blocker, ThreadPoolExecutor(1) as threads:
        query = sql.SQL("SELECT 1 FROM {} FOR UPDATE").format(sql.Identifier(schema, "sessions"))
        with blocker.transaction():
            blocker.execute(query)
            waiting = threads.submit(driver.commit, [item])
            while rows(schema, _WAITING) == [(0,)]:
                time.sleep(0.01)
            assert driver.claim(ClaimChange(key="k", expect=None, record="theirs")) == Done(0)
        assert waiting.result() == [Done(0)]
    assert driver.find_claim("k") == "theirs"


_WAITING = (
    "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%append%'"
)


def test_a_reader_creates_no_schema(schema: str) -> None:
    """A missing store is an error, and is not created."""
    with pytest.raises(NotFound, match=schema):
        PostgresDriver(server_url(schema), create=False)
    assert rows("public", f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'") == []


@pytest.mark.parametrize("name", ["agents", "100 %s", "a$body$b", 'odd "name"; --', "Größe", "x" * 63])
def test_a_schema_may_have_any_name(postgres: str, name: str) -> None:
    """In the URL or beside it."""
    try:
        first = PostgresDriver(postgres, schema=name)
        author = Author("a")
        author.begin(first, say("hello"))
        first.close()
        second = PostgresDriver(server_url(name))
        assert read_all(second, "a") == Page.of(author.chunks, said=True)
        second.close()
    finally:
        drop([name])


@pytest.mark.parametrize("name", ["", "x" * 64, "pg_mine", "ü" * 32])
def test_a_schema_that_postgresql_would_change_or_refuse_is_refused(postgres: str, name: str) -> None:
    """A longer name would be cut short, and meet another one that was cut as well."""
    with pytest.raises(BadUrl, match="schema"):
        PostgresDriver(server_url(name))


def test_a_schema_is_for_postgresql_only(tmp_path: Path) -> None:
    """Other drivers would ignore it, and the caller would rely on it."""
    with pytest.raises(BadUrl, match="is for PostgreSQL"):
        holdfast.open_store(f"sqlite:{tmp_path}/a.db", schema="agents")
    with pytest.raises(BadUrl, match="two schemas"):
        PostgresDriver("postgresql://localhost/a?schema=b", schema="c")


def test_two_schemas_are_two_stores(driver: PostgresDriver, schema: str) -> None:
    """Nothing of one is seen in the other."""
    other = PostgresDriver(server_url(f"{schema}_2"))
    try:
        Author("a").begin(driver)
        assert other.store_id() != driver.store_id()
        assert other.find_tip(SessionId("a")) is None
    finally:
        other.close()
        drop([f"{schema}_2"])


def test_a_newer_schema_is_refused(driver: PostgresDriver, schema: str) -> None:
    """An older holdfast does not touch what it cannot understand."""
    for column in ("version", "format"):
        rows(schema, f"UPDATE store SET {column} = 99 RETURNING 1")
        for create in (True, False):
            with pytest.raises(NewerFormat, match=rf"{column} 99.*Upgrade"):
                PostgresDriver(server_url(schema), create=create)


def test_tables_of_others_are_left_alone(schema: str) -> None:
    """If one of holdfast's names is taken, opening fails, and no table is created."""
    with connect() as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(sql.SQL("CREATE TABLE {} (mine text)").format(sql.Identifier(schema, "sessions")))
    with pytest.raises(BadUrl, match=r"sessions.*choose another"):
        PostgresDriver(server_url(schema))
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
    assert rows(schema, tables) == [("sessions",)]


def test_a_table_called_store_may_be_an_applications(schema: str) -> None:
    """Whatever is in it."""
    with connect() as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(sql.SQL("CREATE TABLE {} (mine text)").format(sql.Identifier(schema, "store")))
    with pytest.raises(BadUrl, match="not holdfast's"):
        PostgresDriver(server_url(schema))


# -- a server of one's own, where roles and databases can be made ---------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """With passwords, over TCP."""
    server = PostgresServer(settings={"wal_writer_delay": "10s"})
    try:
        _furnish(server)
        yield server
    finally:
        server.close()


def _furnish(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'f%o/o@b:a?r'")
        connection.execute("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")


PASSWORD = "f%25o%2Fo%40b%3Aa%3Fr"


def test_a_role_with_only_data_rights_can_use_a_migrated_schema(server: PostgresServer) -> None:
    """It may read and write rows, and nothing else."""
    url = server.tcp_url("clerk", PASSWORD)
    with pytest.raises(StoreFailed, match=r"permission denied.*CREATE, once"):
        PostgresDriver(url, schema="shared")
    PostgresDriver(server.url, schema="shared").close()
    with pytest.raises(StoreFailed, match="Grant the role USAGE on schema 'shared'"):
        PostgresDriver(url, schema="shared")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA shared TO clerk")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA shared TO clerk")
    driver = PostgresDriver(url, schema="shared")
    try:
        author = Author("a")
        author.begin(driver, claims=[ClaimChange(key="k", expect=None, record="r")], keyframe=b"{}")
        driver.post(author.session, b"{}")
        driver.beat(HolderId("h"), b"{}", [])
        driver.blobs.put(sha256(b"data").hexdigest(), [b"data"], BlobContext(), owner="me")
        fork = author.fork("b", seq=1)
        fork.begin(driver)
        assert driver.delete(author.session, author.sum) == Done(1)
        assert driver.delete(fork.session, fork.sum) == Done(0)
        assert list(driver.list_runs(None, None, 10)) == []
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA shared FROM PUBLIC")
        with pytest.raises(StoreFailed, match=r"function append.*EXECUTE on its functions"):
            driver.commit([Author("c").opening()])
    finally:
        driver.close()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"password": "se%20cret"}, BadUrl, "password authentication failed"),
        ({"user": "nobody"}, BadUrl, "refuses this user"),
        ({"database": "nothing"}, NotFound, 'database "nothing" does not exist.*createdb'),
        ({"database": "latin"}, BadUrl, "LATIN1.*UTF8"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_in_one_line(
    server: PostgresServer, change: dict[str, str], error: type[HoldfastError], words: str
) -> None:
    """It says where, and what to do; never the password."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("GRANT CREATE ON DATABASE latin TO clerk")
    given = {"user": "clerk", "password": PASSWORD, **change}
    with pytest.raises(error, match=words) as caught:
        PostgresDriver(server.tcp_url(**given))
    text = str(caught.value)
    assert "\n" not in text
    assert f"127.0.0.1:{server.port}" in text
    assert not any(secret in text for secret in (PASSWORD, "f%o/o", "se cret", "se%20cret"))


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_a_server_that_is_not_there_is_an_error_at_once(postgres: str, host: str) -> None:
    """The driver does not wait for a wrong address."""
    with pytest.raises(StoreUnreachable, match="cannot connect") as caught:
        PostgresDriver(f"postgresql://me:secret@{host}/agents")
    assert "secret" not in str(caught.value)
    assert host.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sec ret@host:port/db",
        "postgresql://me:secret@host/db?sslmod=require",
        "postgresql://me:secret%zz@host/db",
        "postgress://me:secret@host/db",
        "postgresql:me:secret@host/db",
        "pg://me:secret@host/db",
        "http://me:secret@host/db",
        "postgresql://me:secret@host/db?connections=none",
    ],
)
async def test_a_url_that_is_none_does_not_tell_its_password(url: str) -> None:
    """The error shows the mistake, and a correct URL."""
    with pytest.raises(BadUrl) as caught:
        async with holdfast.open_store(url):
            pass
    assert not any(part in str(caught.value) for part in ("secret", "sec ret", "ret@"))


def test_ids_are_compared_byte_by_byte_whatever_the_language(driver: PostgresDriver, schema: str) -> None:
    """In English, `a` comes before `B`; ids are no English."""
    query = f"""
        SELECT table_name, column_name, collation_name FROM information_schema.columns
        WHERE table_schema = '{schema}' AND column_name IN ('session', 'parent', 'holder', 'digest')
            AND table_name IN (SELECT tablename FROM pg_tables WHERE schemaname = '{schema}')
    """
    found = rows(schema, query)
    assert {("chunks", "session"), ("sessions", "parent"), ("holders", "holder")} <= {
        row[:2] for row in found
    }
    assert {collation for _, _, collation in found} == {"C"}


def test_a_commit_waits_for_the_disk_where_the_default_is_not_to(server: PostgresServer) -> None:
    """The role or the database may have `synchronous_commit = off`: what is acknowledged is durable all the
    same."""
    lazy = f"{server.url}&options=-csynchronous_commit%3Doff"
    driver = PostgresDriver(lazy, schema="lazy")
    author = Author("a")
    try:
        with psycopg.connect(lazy, autocommit=True) as raw:
            raw.execute("CREATE TABLE lazy (x int)")

            def is_flushed(upto: str) -> bool:
                row = raw.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", (upto,)).fetchone()
                return bool(row and row[0])

            late = 0
            for number in range(10):
                raw.execute("INSERT INTO lazy VALUES (1)")
                # What is committed now comes after this in the log, which is flushed in order.
                row = raw.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
                assert row is not None
                late += not is_flushed(str(row[0]))
                if number == 0:
                    author.begin(driver)
                else:
                    author.commit(driver, say(f"{number}"))
                assert is_flushed(str(row[0])), number
            assert late, "the server waits anyway, so this shows nothing"
    finally:
        driver.close()


async def test_strings_may_be_read_as_of_old(server: PostgresServer, tmp_path: Path) -> None:
    """Where a backslash in a string means something (`standard_conforming_strings = off`), tables and views
    are made all the same, and texts with backslashes are what they were."""
    url = f"{server.url}&options=-cstandard_conforming_strings%3Doff%20-cbackslash_quote%3Doff"
    schema = schema_of(tmp_path)
    text = "a\\b 'c' \\u0041 \\' \\\\ \0"
    async with holdfast.open_store(url, schema=schema) as store:
        async with store.session("a", labels={"path": "c:\\x"}) as session, session.run(agent=text):
            await session.add(text)
            await session.checkpoint()
        assert [message.text for message in (await store.load("a")).transcript] == [text]
        assert [run.agent async for run in store.runs()] == [text]
        assert [head.session async for head in store.sessions(label={"path": "c:\\x"})] == ["a"]
    with psycopg.connect(url) as connection:
        shown = connection.execute(f"SELECT text FROM {schema}.messages".encode()).fetchone()
    assert shown == (text.replace("\0", "\ufffd"),)


@pytest.mark.parametrize("how", ["setting", "rights"])
async def test_a_role_that_may_only_read_reads_and_its_writes_are_clear_errors(
    server: PostgresServer, how: str, tmp_path: Path
) -> None:
    """At once: the connection was not lost. The same on a standby."""
    schema = schema_of(tmp_path)
    async with holdfast.open_store(server.url, schema=schema) as store, store.session("a") as session:
        await session.add("hello")
        await session.checkpoint()
    if how == "setting":
        url, words = f"{server.url}&options=-cdefault_transaction_read_only%3Don", "is read-only: .*primary"
    else:
        url, words = server.tcp_url("clerk", PASSWORD), "permission denied.*Grant the role"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO clerk".encode())
            connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO clerk".encode())
    async with holdfast.open_store(url, schema=schema) as store:
        assert [head.session async for head in store.sessions()] == ["a"]
        assert [message.text for message in (await store.load("a")).transcript] == ["hello"]
        assert [entry.seq async for entry in store.tail("a", follow=False)]
        assert [run async for run in store.runs()] == []
        for write in (
            lambda: store.submit("a", "more"),
            lambda: store.session("a").__aenter__(),
            lambda: store.fork("a", into="b"),
            lambda: store.put_blob(b"data"),
        ):
            with pytest.raises(StoreFailed, match=words) as caught:
                await write()
            assert not isinstance(caught.value, StoreUnreachable)
            assert "was lost" not in str(caught.value)
    if how == "setting":
        with pytest.raises(StoreFailed, match="is read-only"):
            PostgresDriver(url, schema="nothing_here")


def test_of_several_servers_another_one_is_found_when_one_can_only_be_read(server: PostgresServer) -> None:
    """As after a failover, when connections to the server that was the primary are still open."""
    host = f"{server.socket.parent},{server.socket.parent}"
    url = f"postgresql://postgres@/postgres?host={host}&port={server.port},{server.port}&connections=1"
    driver = PostgresDriver(url, schema="failed_over")
    author = Author("a")
    author.begin(driver)
    try:
        with borrow_connection(driver) as connection:
            connection.execute("SET default_transaction_read_only TO on")
        author.commit(driver, say("hello"))
        assert read_all(driver, "a") == Page.of(author.chunks, said=True)
    finally:
        driver.close()


# -- how it uses its connections ----------------------------------------------------------------------


def prepared_on(connection: psycopg.Connection[Any]) -> list[str]:
    """The functions that the statements prepared on a connection call."""
    query = r"SELECT substring(statement from '(\w+)\(') AS name FROM pg_prepared_statements ORDER BY name"
    return [name for (name,) in connection.execute(query.encode(), prepare=False)]


@pytest.fixture
def pool(postgres: str) -> Iterator[ConnectionPool[Any]]:
    """An application's own."""
    with ConnectionPool(postgres, min_size=1, max_size=1, open=True) as pool:
        yield pool


async def test_an_applications_pool_can_be_used(pool: ConnectionPool[Any], schema: str) -> None:
    """The store borrows connections, leaves nothing behind on them, and does not close the pool."""
    async with holdfast.open_store(pool, schema=schema) as store:
        async with store.session("a") as session:
            for number in range(10):
                await session.add(f"hello {number}")
                await session.checkpoint()
        await store.submit("a", "and more")
    with pool.connection() as connection:
        assert not connection.autocommit
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)
        assert connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (
            0,
        )
    async with holdfast.open_store(server_url(schema)) as store:
        assert len((await store.load("a")).transcript) == 10


def test_the_statements_of_a_commit_are_prepared(schema: str) -> None:
    """On connections that the driver opened."""
    driver = PostgresDriver(server_url(schema) + "&connections=1")
    author = Author("a")
    try:
        author.begin(driver)
        author.commit(driver, say("hello"))
        with borrow_connection(driver) as connection:
            assert prepared_on(connection) == ["append", "append_chunk"]
    finally:
        driver.close()


def test_new_connections_are_prepared_too(schema: str) -> None:
    """Not only the first one, which made the schema."""
    driver = PostgresDriver(server_url(schema))
    author = Author("a")
    try:
        author.begin(driver)
        with borrow_connection(driver) as first, borrow_connection(driver):
            author.commit(driver, say("hello"))
            with borrow_connection(driver) as third:
                assert prepared_on(third) == ["append", "append_chunk"]
                assert first is not third
    finally:
        driver.close()


@pytest.mark.parametrize("gone", [True, False])
def test_a_prepared_name_may_come_and_go(gone: bool, schema: str) -> None:
    """As behind a pooler that hands every transaction to another connection. Each commit lands once."""
    driver = PostgresDriver(server_url(schema) + "&connections=1")
    author = Author("a")
    try:
        author.begin(driver)
        with borrow_connection(driver) as connection:
            if gone:
                connection.execute("DEALLOCATE ALL")
            else:  # Another client has left it there, and this process does not know of it.
                driver._append.chunk._prepared.clear()
                driver._append.prepare(connection)
        for number in range(3):
            author.commit(driver, say(f"hello {number}"))
        # Commits land either way; whether they are sent prepared shows only here.
        assert (connection in driver._append.chunk._prepared) is not gone
        assert read_all(driver, "a") == Page.of(author.chunks, said=True)
    finally:
        driver.close()


def test_a_migration_may_come_while_it_is_prepared(schema: str) -> None:
    """It changes what the function returns: the statement is no longer used prepared, and the commit
    lands."""
    driver = PostgresDriver(server_url(schema) + "&connections=1")
    author = Author("a")
    try:
        author.begin(driver)
        (types,) = rows(
            schema, "SELECT oidvectortypes(proargtypes) FROM pg_proc WHERE oid = 'append_chunk'::regproc"
        )[0]
        values = ", ".join(f"${number}" for number in range(1, types.count(",") + 2))
        for change in (
            f"ALTER FUNCTION append_chunk({types}) RENAME TO append_before",
            f"""CREATE FUNCTION append_chunk({types}) RETURNS varchar LANGUAGE sql
                AS 'SELECT append_before({values})::varchar'
                SET search_path TO "{schema}" """,
        ):
            with connect() as connection:
                connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
                connection.execute(change.encode())
        author.commit(driver, say("hello"))
        assert not driver._append.chunk._prepared
        assert read_all(driver, "a") == Page.of(author.chunks, said=True)
    finally:
        driver.close()


async def test_an_async_pool_is_refused(postgres: str) -> None:
    """The store's threads cannot use it."""
    pool = AsyncConnectionPool(postgres, open=False)
    with pytest.raises(BadInput, match="not an async one"):
        async with holdfast.open_store(pool):  # type: ignore[arg-type]
            pass


def test_a_pool_that_is_closed_is_a_clear_error(postgres: str, schema: str) -> None:
    """At opening, and later."""
    pool = ConnectionPool(postgres, min_size=1, max_size=1, open=True)
    driver = PostgresDriver(pool, schema=schema)
    pool.close()
    with pytest.raises(StoreFailed, match="closed"):
        driver.find_tip(SessionId("a"))
    with pytest.raises(StoreFailed, match="closed"):
        PostgresDriver(pool, schema=schema)


def test_no_more_connections_are_opened_than_allowed(schema: str) -> None:
    """A call that finds none free waits for one."""
    driver = PostgresDriver(server_url(schema) + "&connections=2&application_name=counted")
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: driver.find_tip(SessionId(f"s{number}")), range(100)))
            count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
            assert rows(schema, count)[0][0] <= 2
    finally:
        driver.close()


def test_a_closed_store_says_so(driver: PostgresDriver) -> None:
    """Instead of opening a connection again."""
    driver.close()
    with pytest.raises(StoreFailed, match="was closed"):
        driver.find_tip(SessionId("a"))


def test_the_age_of_a_heartbeat_is_by_the_servers_clock(driver: PostgresDriver, schema: str) -> None:
    """Alone: clocks of clients are not compared."""
    holder = HolderId("h")
    driver.beat(holder, b"{}", [])
    rows(schema, "UPDATE holders SET beat_at = beat_at - interval '1 hour' RETURNING 1")
    beat = driver.find_beat(holder)
    assert beat is not None
    assert beat.age_s is not None
    assert 3600 <= beat.age_s < 3700
    rows(schema, "UPDATE holders SET beat_at = beat_at + interval '2 hours' RETURNING 1")
    beat = driver.find_beat(holder)
    assert beat is not None
    assert beat.age_s == 0, "after a clock was set back, no age is negative"


# -- what it costs ----------------------------------------------------------------------------------------


def counts(driver: PostgresDriver, schema: str, query: str) -> tuple[Any, ...]:
    """What the server has counted up to now, for a driver with one connection."""
    with borrow_connection(driver) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        # Flushed when the statement has ended.
        connection.execute("SELECT 1")
    return rows(schema, query)[0]


def test_a_read_without_what_was_said_does_not_fetch_it(schema: str) -> None:
    """It is stored apart from its row if it is large."""
    driver = PostgresDriver(server_url(schema) + "&connections=1")
    fetched = (
        "SELECT toast_blks_read + toast_blks_hit FROM pg_statio_user_tables WHERE relid = 'chunks'::regclass"
    )
    author = Author("a")
    try:
        author.begin(
            driver, RunStarted(), say(random.Random(1).randbytes(200_000).hex()), RunCompleted(), run="r"
        )
        before = counts(driver, schema, fetched)
        assert driver.read(author.session, 0, 10, said=False) == Page.of(author.chunks, said=False)
        assert len(driver.list_runs(None, None, 10)) == 1
        assert counts(driver, schema, fetched) == before
        assert driver.read(author.session, 0, 10, said=True) == Page.of(author.chunks, said=True)
        assert counts(driver, schema, fetched) > before
    finally:
        driver.close()


def test_a_step_of_a_running_session_writes_to_no_index_of_sessions(schema: str) -> None:
    """The row is replaced within its page, if that has room.

    It may have none while another test's transaction can still see the rows that were replaced before.
    """
    driver = PostgresDriver(server_url(schema) + "&connections=1")
    updates = """
        SELECT n_tup_upd, n_tup_upd - n_tup_hot_upd - n_tup_newpage_upd FROM pg_stat_user_tables
        WHERE relid = 'sessions'::regclass
    """
    author = Author("a")
    try:
        author.begin(driver, RunStarted(), run="r", open_run="r", agent="clerk", labels={"a": "b"})
        before = counts(driver, schema, updates)
        for number in range(100):
            author.commit(driver, say("hello"), run="r", step=number, in_doubt=number % 2, usd=number / 7)
        assert counts(driver, schema, updates) == (before[0] + 100, before[1])
    finally:
        driver.close()


@pytest.mark.parametrize("status", ["active", "failed"])
def test_sessions_of_a_status_are_found_among_many_others(schema: str, status: str) -> None:
    """Without a look at the others."""
    driver = PostgresDriver(server_url(schema) + "&connections=1")
    looked_at = """
        SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
        WHERE relid = 'sessions'::regclass
    """
    author = Author("zz")
    fill = """
        INSERT INTO sessions (session, uid, seq, sum, status, in_doubt, labels, head)
        SELECT 's' || number, number, seq, sum, 'completed', 0, '{}', head
        FROM sessions, generate_series(1, 100000) AS number
        RETURNING 1
    """
    try:
        author.begin(driver, status=status)
        rows(schema, fill)
        with connect() as connection:
            connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(schema, "sessions")))
        (before,) = counts(driver, schema, looked_at)
        found = driver.list_tips(HeadFilter(status=author.head.status), None, 256)
        assert [tip.session for tip in found] == ["zz"]
        assert counts(driver, schema, looked_at)[0] - before <= 10
    finally:
        driver.close()


# -- blobs ----------------------------------------------------------------------------------------------


def test_a_part_that_comes_while_its_upload_is_swept_away_does_not_stay(
    driver: PostgresDriver, schema: str
) -> None:
    """No call would ever find it."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%blob_parts%'"
    landed = threading.Event()

    def end_sweep() -> None:
        with connect() as looking:
            while not landed.wait(0.01) and not looking.execute(waits).fetchall():
                pass
        sweeping.commit()

    def parts() -> Iterator[bytes]:
        yield bytes(BLOB_PART_BYTES)
        sweeping.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        sweeping.execute("SELECT 1 FROM uploads FOR UPDATE")
        sweeping.execute("DELETE FROM blob_parts")
        sweeping.execute("DELETE FROM uploads")
        ended.append(threads.submit(end_sweep))
        yield bytes(BLOB_PART_BYTES)
        landed.set()

    ended: list[Future[None]] = []
    with connect() as sweeping, ThreadPoolExecutor(1) as threads:
        sweeping.autocommit = False
        digest = sha256(bytes(2 * BLOB_PART_BYTES)).hexdigest()
        with pytest.raises(StoreFailed, match="swept away"):
            driver.blobs.put(digest, parts(), BlobContext(), owner="me")
        ended[0].result()
    assert rows(schema, "SELECT upload, part FROM blob_parts") == []


# -- hints ----------------------------------------------------------------------------------------------


def expect_wake_up(driver: PostgresDriver) -> None:
    """Wait for work, and return before the timeout."""
    wait_s, began_s = 60.0, time.monotonic()
    driver.wait_for_work(wait_s)
    assert time.monotonic() - began_s < wait_s


def test_a_post_ends_a_wait_for_work(driver: PostgresDriver, schema: str) -> None:
    """Of any connection, also if it came between two waits."""
    other = PostgresDriver(server_url(schema))
    try:
        author = Author("a")
        author.begin(driver)
        expect_wake_up(driver)  # Begins to listen, and returns, since there may be earlier posts.
        other.post(author.session, b"{}")
        expect_wake_up(driver)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(expect_wake_up, driver)
            other.post(author.session, b"{}")
            waiting.result()
    finally:
        other.close()


def test_listening_resumes_after_a_lost_connection(driver: PostgresDriver, schema: str) -> None:
    """Notifications in between are lost, so the wait ends, and the caller looks."""
    author = Author("a")
    author.begin(driver)
    expect_wake_up(driver)
    # Waits until it is gone: on a busy machine, the short wait below would not notice it otherwise.
    cut = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE query = %s"
    with connect() as connection:
        assert connection.execute(cut, (f"LISTEN {channel_of(schema)}",)).fetchall() == [(True,)]
    driver.wait_for_work(0.01)
    expect_wake_up(driver)
    driver.post(author.session, b"{}")
    expect_wake_up(driver)


# -- the views --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a\0b", "\0\0", "a\\u0000b", "a\\\0b", "half \\ud83d of a pair", "\U0001f600"]
)
async def test_a_text_that_json_in_postgresql_cannot_hold_is_stored_and_shown(schema: str, text: str) -> None:
    """Stored as it is; shown with a mark in the place of each NUL. It breaks no view and no index."""
    async with holdfast.open_store(server_url(schema)) as store:
        async with store.session("a") as session, session.run(run_id="r", agent=text, config={"x": text}):
            await session.add(text)
        assert [message.text for message in (await store.load("a")).transcript] == [text]
        assert [run.agent async for run in store.runs()] == [text]
    shown = text.replace("\0", "\ufffd")
    assert rows(schema, "SELECT text FROM messages") == [(shown,)]
    assert rows(schema, "SELECT agent FROM runs") == [(shown,)]


async def test_the_views_show_entries_of_one_chunk_and_null_for_what_was_erased(schema: str) -> None:
    """Each entry with its own time and run, whatever else is in its chunk."""
    async with holdfast.open_store(server_url(schema)) as store:
        async with store.session("a") as session:
            await session.add("before")
            async with session.run(run_id="r1"):
                await session.add("in it")
                await holdfast.Registry([look]).dispatch(
                    "look", {"order": "1"}, call_id="c1", session=session
                )
                await session.checkpoint()
            entries = [entry async for entry in store.tail("a", follow=False)]
            shown = rows(schema, "SELECT seq, at, run, step, kind FROM entries ORDER BY seq")
            assert shown == [(one.seq, one.at, one.run, one.step, one.kind) for one in entries]
            assert len({chunk for (chunk,) in rows(schema, "SELECT chunk FROM entries")}) < len(entries)
        assert rows(schema, "SELECT run, text FROM messages ORDER BY seq") == [
            (None, "before"),
            ("r1", "in it"),
        ]
        assert rows(schema, "SELECT args ->> 'order', status FROM effects") == [("1", "completed")]
        await store.clean("a", checkpoints=False)
    assert rows(schema, "SELECT text, message, role FROM messages") == [(None, None, "user")] * 2
    assert rows(schema, "SELECT args, tool, status FROM effects") == [(None, "look", "completed")]


@holdfast.tool(side_effects={"read"})
async def look(order: str) -> str:
    """Never waits, so intent and outcome are one entry."""
    return f"{order} is open"

"""A store that is opened to be read only: everything can be looked at, and nothing is written anywhere."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from psycopg import sql

import holdfast
from holdfast import Registry, Store, tool
from holdfast.blobs import open_home
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import NotFound, OpenedToRead, StoreFailed
from holdfast.store.approvals import find_waiting
from tests.stores import connect, rows, server_url

_DIES = """
import os, sys, anyio, holdfast
from holdfast import Registry, tool

@tool(side_effects={"mutate"})
async def send(text: str) -> str:
    os.kill(os.getpid(), 9)
    return "never"

async def main():
    async with holdfast.open_store(sys.argv[1]) as store, store.session("killed") as session:
        await session.add("Please write")
        await session.checkpoint()
        await store.put_blob(b"a picture")
        await Registry([send]).dispatch("send", {"text": "Dear Ann"}, session=session)

anyio.run(main)
"""


def leave_killed(url: str) -> None:
    """A store whose only process was killed in the middle of a call."""
    done = subprocess.run([sys.executable, "-c", _DIES, url], env=os.environ, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def contents(url: str, place: Path) -> Callable[[], Any]:
    """What looks at everything that is stored."""
    if url.startswith("postgresql"):
        schema = url.partition("schema=")[2]
        names = [
            row[0] for row in rows(schema, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
        ]
        return lambda: {name: sorted(map(repr, rows(schema, f'SELECT * FROM "{name}"'))) for name in names}

    def look() -> dict[str, str]:
        found = [path for path in place.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    return look


async def look_at_everything(store: Store) -> None:
    """All that a reader may ask for."""
    (head,) = [head async for head in store.sessions()]
    assert head.in_doubt == 1
    assert not await store.is_held(head)
    state = await store.load("killed")
    assert str(state.transcript[0]).count("Please write") == 1
    assert (await store.load("killed", 1)).version == 1
    await store.overview("killed")
    assert [entry async for entry in store.tail("killed", follow=False)]
    assert [run async for run in store.runs()] == []
    assert [worker async for worker in store.workers()] == []
    assert [doubt.session async for doubt in store.in_doubt()] == ["killed"]
    assert [one.session for one in await find_waiting(store)] == ["killed"]
    (blob,) = [blob async for blob in store.blobs(sessions=True)]
    assert b"".join([part async for part in store.read_blob(blob.digest)]) == b"a picture"


@pytest.mark.parametrize("scheme", ["dir", "sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
async def test_a_killed_session_is_looked_at_and_nothing_is_written(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Not its log, no lease, no heartbeat, not even the tidying that others leave to whoever comes next."""
    if scheme == "postgresql":
        url = server_url(request.getfixturevalue("schema"))
    else:
        url = f"{scheme}:{tmp_path}/store"
    leave_killed(url)
    look = contents(url, tmp_path)
    before = look()
    for _ in range(2):
        async with holdfast.open_store(url, read_only=True) as store:
            await look_at_everything(store)
        assert look() == before
    async with holdfast.open_store(url) as store:
        await look_at_everything(store)
    assert look() != before, "another reader would have forgotten the dead process"


async def test_everything_that_writes_is_refused(store_url: Any) -> None:
    """With an error that says why; and the store is as it was."""

    @tool(side_effects={"mutate"})
    async def send(text: str) -> str:
        """Send a letter."""
        raise ConnectionError("the line went dead")

    async with holdfast.open_store(store_url) as writer:
        async with writer.session("s") as session:
            await session.add("Hello")
            await session.checkpoint()
            await Registry([send]).dispatch("send", {"text": "x"}, session=session)
        async with holdfast.open_store(store_url, read_only=True) as store:
            before = await store.head("s")
            with pytest.raises(OpenedToRead, match="read_only=True"):
                async with store.session("s"):
                    pytest.fail("it must not open")
            for attempt in (
                lambda: store.submit("s", "Hi"),
                lambda: store.submit("new", "Hi", agent="a"),
                lambda: store.cancel("s"),
                lambda: store.fork("s"),
                lambda: store.delete("s"),
                lambda: store.drop("s", 1),
                lambda: store.put_blob(b"x"),
                lambda: store.collect_blobs(dry_run=False),
                lambda: store.resolve("s", "call_0", "landed", by="ann"),
            ):
                with pytest.raises((OpenedToRead, NotFound)):
                    await attempt()
            assert await store.head("s") == before
        assert [head.session async for head in writer.sessions()] == ["s"]


async def test_a_missing_store_is_not_made(tmp_path: Path) -> None:
    """Whatever `create` says; nor is an empty file taken for one."""
    for url in (f"dir:{tmp_path}/none", f"sqlite:{tmp_path}/none.db"):
        with pytest.raises(NotFound):
            await holdfast.open_store(url, read_only=True).__aenter__()
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(NotFound):
        await holdfast.open_store(empty, read_only=True).__aenter__()
    assert os.listdir(tmp_path) == ["empty.db"]
    assert os.stat(empty).st_size == 0


async def test_an_older_schema_is_not_brought_up_to_date(tmp_path: Path) -> None:
    """That would be a write; the error says how to go on."""
    path = tmp_path / "old.db"
    async with holdfast.open_store(path):
        pass
    db = apsw.Connection(str(path))
    db.pragma("user_version", 0)
    db.close()
    with pytest.raises(StoreFailed, match="open it once to write"):
        await holdfast.open_store(path, read_only=True).__aenter__()
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == 0
    db.close()


@pytest.mark.long
async def test_an_older_schema_of_a_server_is_not_brought_up_to_date(schema: str) -> None:
    """The same in PostgreSQL, where a role may have the right to."""
    async with holdfast.open_store(server_url(schema)):
        pass
    with connect() as connection:
        connection.execute(sql.SQL("UPDATE {} SET version = 0").format(sql.Identifier(schema, "store")))
    with pytest.raises(StoreFailed, match="open it once to write"):
        await holdfast.open_store(server_url(schema), read_only=True).__aenter__()
    assert rows(schema, "SELECT version FROM store") == [(0,)]


async def test_what_others_write_meanwhile_is_seen(store_url: Any) -> None:
    """A reader follows a session that is held elsewhere."""
    async with (
        holdfast.open_store(store_url) as writer,
        writer.session("s") as session,
        holdfast.open_store(store_url, read_only=True) as reader,
    ):
        for number in range(3):
            await session.add(f"message {number}")
            await session.flush()
            assert len((await reader.load("s")).transcript) == number + 1
        assert await reader.is_held(await reader.head("s"))


async def test_a_home_of_blobs_beside_the_store_is_only_read(tmp_path: Path) -> None:
    """The same holds for it."""
    home = f"dir:{tmp_path}/blobs"
    async with holdfast.open_store("memory:", blobs=home) as store:
        blob = await store.put_blob(b"a picture")
    driver = MemoryDriver()
    with pytest.raises(NotFound):
        await holdfast.open_store(driver, blobs=f"dir:{tmp_path}/other", read_only=True).__aenter__()
    async with holdfast.open_store(driver, blobs=open_home(home), read_only=True) as store:
        assert b"".join([part async for part in store.read_blob(blob.digest)]) == b"a picture"
        with pytest.raises(OpenedToRead):
            await store.put_blob(b"another")

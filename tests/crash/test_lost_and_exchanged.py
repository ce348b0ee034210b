"""What was acknowledged and is no longer there, and journals that changed places: noticed on opening.

No crash leaves a store like this. It is what a bad disk, an incomplete copy or a person with a shell makes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from holdfast import Store, open_store
from holdfast.errors import Corrupt
from holdfast.limits import KEYFRAME_ENTRIES_MIN
from tests.session.example_sessions import collect
from tests.stores import connect, on_every_driver, open_driver, schema_of, server_url

NAMES: Final = ("a", "b")
"""The sessions that are damaged; `c` is not, and `f` is a fork of `a`."""


def _address(url: str) -> str:
    """The URL for `open_store`."""
    scheme, _, path = url.partition(":")
    return server_url(schema_of(path)) if scheme == "postgresql" else url


async def _fill(url: str, *, long: bool) -> None:
    """Sessions with as many entries each, so that numbers alone tell nothing; long ones have a keyframe."""
    open_driver(url).close()
    async with open_store(_address(url)) as store:
        for name in (*NAMES, "c"):
            async with store.session(name, labels={"name": name}) as session:
                async with session.run(agent="clerk"):
                    await session.add(f"hello from {name}")
                    await session.checkpoint()
                for number in range(KEYFRAME_ENTRIES_MIN if long else 0):
                    await session.set("number", number)
                await session.add("the last one")
                await session.checkpoint()
        await store.fork("a", version=1, into="f")


async def _expect_damage(url: str, names: Sequence[str], match: str | None = None) -> None:
    """Every way to open these sessions is `Corrupt`; the others are as they were, and nothing was changed."""
    before = _dump(url)
    async with open_store(_address(url)) as store:
        for name in names:
            for way in _ways(store, name):
                with pytest.raises(Corrupt, match=match) as caught:
                    await way()
                assert f"'{name}'" in str(caught.value) or f"sessions/{name}/" in str(caught.value)
    assert _dump(url) == before
    async with open_store(_address(url)) as store:
        assert [message.text for message in (await store.load("c")).transcript] == [
            "hello from c",
            "the last one",
        ]
        damaged: list[str] = []
        listed = [
            one.session async for one in store.sessions(on_damaged=lambda name, _: damaged.append(name))
        ]
        assert "c" in listed
        assert sorted([*listed, *damaged]) == ["a", "b", "c", "f"]


def _ways(store: Store, name: str) -> list[Callable[[], Awaitable[object]]]:
    return [
        partial(store.load, name),
        partial(store.overview, name),
        partial(_open, store, name),
        partial(_tail, store, name),
        partial(store.fork, name, into="new"),
        partial(store.delete, name),
    ]


async def _open(store: Store, name: str) -> None:
    async with store.session(name) as session:
        await session.add("never")


async def _tail(store: Store, name: str) -> None:
    await collect(store.tail(name, follow=False))


# -- what is stored -----------------------------------------------------------------------------------


class Sql:
    """Statements for a person with a shell, on SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._scheme, _, self._path = url.partition(":")

    def __call__(self, *statements: str) -> list[list[tuple[Any, ...]]]:
        """Run them in one transaction; the rows of each."""
        if self._scheme == "sqlite":
            db = apsw.Connection(self._path)
            try:
                with db:
                    return [list(db.execute(one)) for one in statements]
            finally:
                db.close()
        with connect() as connection, connection.transaction():
            connection.execute(f"SET LOCAL search_path TO {schema_of(self._path)}".encode())
            cursors = [connection.execute(one.encode()) for one in statements]
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _dump(url: str) -> object:
    """Journals, heads and keyframes, as they are stored."""
    scheme, _, path = url.partition(":")
    if scheme == "dir":
        found = [one for one in Path(path, "sessions").rglob("*") if one.is_file()]
        return {str(one): one.read_bytes() for one in found}
    tables = ("chunks", "sessions", "keyframes", "run_chunks", "pins")
    return [sorted(map(str, rows)) for rows in Sql(url)(*(f"SELECT * FROM {table}" for table in tables))]


# -- a missing last commit ----------------------------------------------------------------------------


def _lose_last_chunks(url: str, session: str, count: int) -> None:
    """Remove the last chunks of a journal, and nothing else."""
    scheme, _, path = url.partition(":")
    if scheme == "dir":
        journal = Path(path, "sessions", session, "journal.jsonl")
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:-count]))
        return
    last = f"SELECT seq FROM chunks WHERE session = '{session}' ORDER BY seq DESC LIMIT {count}"
    Sql(url)(f"DELETE FROM chunks WHERE session = '{session}' AND seq IN ({last})")


@pytest.mark.parametrize("long", [False, True], ids=["short", "with a keyframe"])
@pytest.mark.parametrize("count", [1, 2])
@on_every_driver
async def test_a_missing_last_commit_is_noticed(
    scheme: str, quick_path: Path, count: int, long: bool
) -> None:
    """The head says that it was acknowledged: an error for readers and writers, not a shorter session."""
    url = f"{scheme}:{quick_path}/store"
    await _fill(url, long=long)
    _lose_last_chunks(url, "a", count)
    await _expect_damage(url, ["a"], "were acknowledged")


# -- exchanged journals -------------------------------------------------------------------------------

EXCHANGED: Final = {
    "the journals": ("chunks",),
    "the journals with their heads": ("chunks", "sessions"),
    "everything": ("chunks", "sessions", "keyframes", "run_chunks"),
    "everything, in heads that are made to fit": ("chunks", "sessions", "keyframes", "run_chunks"),
}


def _exchange(url: str, what: str) -> None:
    scheme, _, path = url.partition(":")
    fitting = what.endswith("made to fit")
    if scheme == "dir":
        _exchange_files(Path(path, "sessions"), what)
        if fitting:
            for name in NAMES:
                _make_head_fit(Path(path, "sessions", name, "head.json"), name)
        return
    sql = Sql(url)
    sql(*(statement for table in EXCHANGED[what] for statement in _swap(table)))
    if fitting:
        for name, head in sql("SELECT session, head FROM sessions WHERE session IN ('a', 'b')")[0]:
            fit = json.dumps({**json.loads(head), "session": name}).replace("'", "''")
            sql(f"UPDATE sessions SET head = '{fit}' WHERE session = '{name}'")


def _swap(table: str) -> list[str]:
    steps = (("a", "#"), ("b", "a"), ("#", "b"))
    return [f"UPDATE {table} SET session = '{new}' WHERE session = '{old}'" for old, new in steps]


def _exchange_files(sessions: Path, what: str) -> None:
    if what == "the journals":
        names = ["journal.jsonl"]
    elif what == "the journals with their heads":
        names = ["journal.jsonl", "head.json"]
    else:
        names = [""]
    aside = sessions.parent / "tmp" / "aside"
    for name in names:
        (sessions / "a" / name).rename(aside)
        (sessions / "b" / name).rename(sessions / "a" / name)
        aside.rename(sessions / "b" / name)


def _make_head_fit(path: Path, name: str) -> None:
    head = json.loads(path.read_bytes())["head"]
    data = json.dumps({**head, "session": name}, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()[:32].encode()
    path.write_bytes(b'{"digest":"%b","head":%b}\n' % (digest, data))


@pytest.mark.parametrize("long", [False, True], ids=["short", "with a keyframe"])
@pytest.mark.parametrize("what", EXCHANGED)
@on_every_driver
async def test_journals_that_were_exchanged_are_noticed(
    scheme: str, quick_path: Path, what: str, long: bool
) -> None:
    """Each journal says whose it is, whatever stands beside it. A fork knows its origin, too."""
    url = f"{scheme}:{quick_path}/store"
    await _fill(url, long=long)
    _exchange(url, what)
    await _expect_damage(url, NAMES)
    async with open_store(_address(url)) as store:
        with pytest.raises(Corrupt, match=r"'f'|sessions/a/"):
            await store.load("f")
        for name in NAMES:
            with pytest.raises(Corrupt):
                await collect(store.runs(session=name))


@on_every_driver
async def test_heads_that_were_exchanged_are_noticed(scheme: str, quick_path: Path) -> None:
    """Without their journals."""
    url = f"{scheme}:{quick_path}/store"
    await _fill(url, long=False)
    path = Path(url.partition(":")[2])
    if scheme == "dir":
        a, b = (path / "sessions" / name / "head.json" for name in NAMES)
        first, second = a.read_bytes(), b.read_bytes()
        a.write_bytes(second)
        b.write_bytes(first)
    else:
        Sql(url)(*_swap("sessions"))
    await _expect_damage(url, NAMES)

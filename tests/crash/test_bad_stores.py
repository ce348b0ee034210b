"""A store that is damaged, foreign, newer or not writable: one clear error, and not a byte is changed."""

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import apsw
import pytest

from holdfast import HoldfastError, open_store
from holdfast.drivers.sqlite.schema import migrations
from holdfast.errors import BadUrl, Corrupt, NewerFormat, StoreFailed
from tests.stores import on_files

from .fork_server import Line, Warm

SESSIONS = ("a", "b", "c")
_CLONE_NEWNS = 0x20000


async def _fill(url: str) -> None:
    async with open_store(url) as store:
        for name in SESSIONS:
            async with store.session(name) as session:
                for number in range(30):
                    await session.add(f"message {number} of {name}: " + "x" * 1000)
                    await session.checkpoint()


async def _load_all(url: str) -> dict[str, str]:
    """What comes of reading each session: how many messages, or the error."""
    found: dict[str, str] = {}
    try:
        async with open_store(url, create=False) as store:
            for name in SESSIONS:
                try:
                    found[name] = str(len((await store.load(name)).transcript))
                except HoldfastError as error:
                    found[name] = type(error).__name__
    except HoldfastError as error:
        return {"all": type(error).__name__}
    return found


def _digest(path: Path) -> dict[str, str]:
    """The files, without those that SQLite makes and removes as it likes."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


# -- damage -------------------------------------------------------------------------------------------


async def test_a_database_cut_to_half_its_size_is_corrupt(tmp_path: Path) -> None:
    """Whoever reads what is gone is told so, each time; nothing is changed."""
    path = tmp_path / "store.db"
    await _fill(f"sqlite:{path}")
    os.truncate(path, path.stat().st_size // 2)
    before = _digest(path)
    for _ in range(2):
        found = await _load_all(f"sqlite:{path}")
        assert "Corrupt" in found.values(), found
        assert set(found.values()) <= {"Corrupt", "30"}, found
    assert _digest(path) == before


async def test_a_database_cut_to_half_its_size_is_not_written_to_silently(tmp_path: Path) -> None:
    """Writing fails with the same clear error, or what was written can be read."""
    path = tmp_path / "store.db"
    await _fill(f"sqlite:{path}")
    os.truncate(path, path.stat().st_size // 2)
    failures = []
    try:
        async with open_store(f"sqlite:{path}") as store:
            for name in (*SESSIONS, "new"):
                try:
                    async with store.session(name) as session:
                        await session.add("one more")
                        await session.checkpoint()
                except HoldfastError as error:
                    failures.append(error)
    except HoldfastError as error:
        failures.append(error)
    assert failures
    assert all(isinstance(error, Corrupt) for error in failures), failures


def _edit_in_directory(root: Path, session: str, edit: Callable[[str], str], number: int) -> None:
    path = root / "sessions" / session / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = edit(lines[number - 1])
    path.write_text("".join(lines))


def _edit_in_sqlite(path: Path, session: str, edit: Callable[[str], str], number: int) -> None:
    db = apsw.Connection(str(path))
    query = "SELECT seq, facts, said FROM chunks WHERE session = ? ORDER BY seq LIMIT 1 OFFSET ?"
    seq, facts, said = db.execute(query, (session, number - 1)).fetchall()[0]
    edited = [edit(str(part)) for part in (facts, said)]
    where = "WHERE session = ? AND seq = ?"
    if edited[0]:
        db.execute(f"UPDATE chunks SET facts = ?, said = ? {where}", (*edited, session, seq))
    else:
        db.execute(f"DELETE FROM chunks {where}", (session, seq))
    db.close()


EDITS: dict[str, Callable[[str], str]] = {
    "another word": lambda line: line.replace("message 1 ", "massage 1 "),
    "another time": lambda line: line.replace('"at":"20', '"at":"19'),
    "another number": lambda line: line.replace('"seq":5', '"seq":6'),
    "no JSON": lambda line: line.replace('"seq"', "'seq'"),
    "cut short": lambda line: line[: len(line) // 2] + ("\n" if line.endswith("\n") else ""),
    "gone": lambda line: "",
}


@pytest.mark.parametrize("edit", EDITS)
@on_files
async def test_an_edited_chunk_is_found(scheme: str, tmp_path: Path, edit: str) -> None:
    """By its place; the other sessions are as they were, and nothing is changed."""
    path, url = tmp_path / "store", f"{scheme}:{tmp_path}/store"
    await _fill(url)
    change = _edit_in_directory if scheme == "dir" else _edit_in_sqlite
    # Entry 5 is the second message: the session is opened and held in a chunk of its own, spoken to and
    # checkpointed in another.
    change(path, "b", EDITS[edit], 3)
    before = _digest(path)
    async with open_store(url) as store:
        with pytest.raises(Corrupt, match=r"entry|line") as caught:
            list((await store.load("b")).transcript)
        assert caught.value.line == 3 or caught.value.seq == 5 or "entry 5" in str(caught.value)
        for name in ("a", "c"):
            assert len((await store.load(name)).transcript) == 30
        listed = [head.session async for head in store.sessions()]
        assert {"a", "c"} <= set(listed)
    assert _digest(path) == before
    async with open_store(url) as store:
        with pytest.raises(Corrupt):
            async with store.session("b") as session:
                list(session.transcript)
        async with store.session("a") as session:
            await session.add("undisturbed")
            await session.checkpoint()


# -- foreign and newer --------------------------------------------------------------------------------


async def _expect_refusal(url: str, path: Path, error: type[HoldfastError]) -> None:
    before = _digest(path)
    for create in (True, False):
        with pytest.raises(error) as caught:
            async with open_store(url, create=create):
                pass
        assert str(path) in str(caught.value)
    assert _digest(path) == before


@pytest.mark.parametrize("content", [b"Not a database, but long enough to be one. " * 50, b"short"])
async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, content: bytes) -> None:
    """It is somebody's file, and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    await _expect_refusal(f"sqlite:{path}", path, BadUrl)


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_a_foreign_database_is_refused(tmp_path: Path, mode: str) -> None:
    """It is somebody's database: no table and no journal mode is changed."""
    path = tmp_path / "theirs.db"
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", mode)
    db.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    db.close()
    await _expect_refusal(f"sqlite:{path}", path, BadUrl)


async def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    """So is a directory with something else in it, and a file."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("important")
    await _expect_refusal(f"dir:{tmp_path}/theirs", tmp_path / "theirs", BadUrl)
    (tmp_path / "file").write_text("important")
    await _expect_refusal(f"dir:{tmp_path}/file", tmp_path / "file", BadUrl)


async def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    """An older holdfast does not touch what it cannot understand."""
    path = tmp_path / "store.db"
    await _fill(f"sqlite:{path}")
    db = apsw.Connection(str(path))
    db.pragma("user_version", len(migrations()) + 1)
    db.close()
    await _expect_refusal(f"sqlite:{path}", path, NewerFormat)


async def test_a_newer_directory_is_refused(tmp_path: Path) -> None:
    """The same for a directory."""
    root = tmp_path / "store"
    await _fill(f"dir:{root}")
    store = root / "holdfast.json"
    store.write_text(json.dumps({**json.loads(store.read_text()), "format": 99}))
    await _expect_refusal(f"dir:{root}", root, NewerFormat)


async def test_migrations_are_applied_once(tmp_path: Path) -> None:
    """Opening again changes neither the schema nor the store's id."""
    path = tmp_path / "store.db"
    await _fill(f"sqlite:{path}")
    seen = []
    for _ in range(2):
        db = apsw.Connection(str(path))
        seen.append(
            (db.execute("SELECT sql FROM sqlite_schema").fetchall(), db.execute("SELECT * FROM store").get)
        )
        assert db.pragma("user_version") == len(migrations())
        db.close()
        await _load_all(f"sqlite:{path}")
    assert seen[0] == seen[1]


# -- not writable -------------------------------------------------------------------------------------


def try_read_only(line: Line, url: str, folder: str) -> dict[str, str]:
    """What comes of opening and writing where nothing can be written."""
    if os.geteuid() == 0:
        # Root may write anywhere, but not to a file system that is mounted read-only. Only this process
        # has it so, and with its end it is over.
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(_CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        for options in (
            ["--make-rprivate", "/"],
            ["--bind", folder, folder],
            ["-o", "remount,ro,bind", folder],
        ):
            subprocess.run(["mount", *options], check=True)
    else:
        for path in Path(folder).rglob("*"):
            path.chmod(0o500 if path.is_dir() else 0o400)
        Path(folder).chmod(0o500)
    return anyio.run(_try_read_only, url)


async def _try_read_only(url: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for what, address in (("old", url), ("new", f"{url}-new"), ("deeper", f"{url}/../deeper/store")):
        try:
            async with open_store(address) as store, store.session("a") as session:
                await session.add("never")
                await session.checkpoint()
            found[what] = "written"
        except HoldfastError as error:
            found[what] = f"{type(error).__name__}: {error}"
    async with open_store(url, create=False) as store:
        heads = [head async for head in store.sessions()]
        assert not any([await store.is_held(head) for head in heads[:3]])
        ids = [head.session for head in heads]
        found["seen"] = " ".join([*ids, *[str(len((await store.load(id)).transcript)) for id in ids]])
    return found


async def _fill_and_copy(url: str, folder: Path, *, shared: bool) -> None:
    """As a killed process leaves it: with a log that nobody has folded into the file."""
    await _fill(url)
    async with open_store(url) as store, store.session("late") as session:
        await session.add("just now")
        await session.flush()
        source = Path(url.partition(":")[2]).parent
        ignored = shutil.ignore_patterns() if shared else shutil.ignore_patterns("*-shm")
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=ignored)


@on_files
@pytest.mark.parametrize("left", ["closed", "killed", "killed and moved"])
def test_a_directory_that_cannot_be_written_can_be_looked_at_and_is_one_clear_error_to_who_writes(
    warm: Warm, scheme: str, left: str, tmp_path: Path
) -> None:
    """Whether there is a store already or not."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    url = f"{scheme}:{folder}/store"
    seen = "a b c 30 30 30"
    if left == "closed":
        anyio.run(_fill, url)
    else:
        (tmp_path / "origin").mkdir()
        origin = f"{scheme}:{tmp_path}/origin/store"
        anyio.run(partial(_fill_and_copy, origin, folder, shared=left == "killed"))
        seen = "a b c late 30 30 30 1"
    before = _digest(folder)
    found = warm.call(try_read_only, url, str(folder))
    assert found.pop("seen") == seen
    for what, error in found.items():
        assert error.startswith(f"{StoreFailed.__name__}: "), f"{what}: {error}"
        assert str(folder) in error
    if os.geteuid() != 0:
        folder.chmod(0o700)
        for path in folder.rglob("*"):
            path.chmod(0o700)
    assert _digest(folder) == before

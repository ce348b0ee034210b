"""Exports that are read again, and those that were edited."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

import pytest

from holdfast import Store, open_store
from holdfast.drivers.contract import Driver
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput, Corrupt, HoldfastError, NewerFormat, NotFound
from tests.internals import engine_of
from tests.session.example_sessions import step, texts

from .random_stores import contents_of, fill, replicas

FORMS = ["inline", "folder", "tar"]


@pytest.fixture
def anyio_backend() -> str:
    """LangGraph knows asyncio only."""
    return "asyncio"


def places(form: str, folder: Path) -> tuple[Path, Path | None]:
    """The file of an export, and the folder of its blobs."""
    name = "store.tar" if form == "tar" else "store.jsonl"
    return folder / name, folder / "blobs" if form == "folder" else None


async def _export_and_import(form: str, target: str | Driver, folder: Path, seed: int) -> None:
    path, blobs = places(form, folder)
    async with open_store("memory:") as source, open_store(target) as other:
        await fill(source, seed, 40)
        expected = contents_of(source)
        written = await source.export_file(path, blobs=blobs)
        assert set(written.sessions) >= set(expected.sessions)
        copied = await other.import_file(path, blobs=blobs)
        assert copied.lost_blobs == written.lost_blobs == ()
        assert contents_of(other) == expected
        assert all((await replicas(other)).values())
        again = await other.import_file(path, blobs=blobs)
        assert (again.entries, again.claims) == (0, 0)
        # A copy of the copy is the same export, but for what names the store and the replicas' heads.
        assert (await other.export_file(folder / "again.tar")).entries == written.entries


@pytest.mark.parametrize("form", FORMS)
async def test_an_export_is_imported_byte_for_byte(
    form: str, store_url: str | Driver, tmp_path: Path, seed: int
) -> None:
    """With its blobs in the lines, in a folder, or in one archive."""
    await _export_and_import(form, store_url, tmp_path, seed)


async def make(store: Store, name: str = "s") -> None:
    """A session with a blob, two versions, a claim and something in its inbox."""
    async with store.session(name) as session:
        await step(session, "one")
        await session.set("photo", b"x" * 70_000)
        await step(session, "two")
        async with session.hold("printer"):
            pass
    await store.submit(name, "psst")


async def _refused(store: Store, path: Path) -> Corrupt:
    with pytest.raises(Corrupt) as refused:
        await store.import_file(path)
    assert [head async for head in store.sessions()] == []
    assert engine_of(store).driver.list_claims(None, 10) == []
    return refused.value


async def test_a_line_that_was_edited_is_refused_by_its_number(tmp_path: Path, seed: int) -> None:
    """Whichever it is, and however little was changed; nothing is written."""
    choose = random.Random(seed)
    path = tmp_path / "store.jsonl"
    async with open_store("memory:") as source, open_store("memory:") as target:
        await make(source)
        await source.export_file(path)
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) > 10
        for number, line in enumerate(lines, start=1):
            place = choose.randrange(len(line))
            changed = bytes([line[place] ^ 1]) if line[place : place + 1] != b"\n" else b" "
            edited = [*lines]
            edited[number - 1] = line[:place] + changed + line[place + 1 :]
            path.write_bytes(b"".join(edited))
            assert (await _refused(target, path)).line == number, (number, place)
        path.write_bytes(b"".join(lines))
        assert (await target.import_file(path)).entries > 0


async def test_lines_that_are_missing_or_moved_are_refused(tmp_path: Path) -> None:
    """Also the last ones."""
    path = tmp_path / "store.jsonl"
    async with open_store("memory:") as source, open_store("memory:") as target:
        await make(source)
        await source.export_file(path)
        lines = path.read_bytes().splitlines(keepends=True)
        for edited, number in (
            (lines[:3] + lines[4:], 4),
            ([*lines[:2], lines[3], lines[2], *lines[4:]], 3),
            (lines[:-1], len(lines)),
            ([*lines[:-1], lines[-1][:-1]], len(lines)),
            ([*lines, lines[-1]], len(lines) + 1),
            ([*lines, b"\n"], len(lines) + 1),
        ):
            path.write_bytes(b"".join(edited))
            assert (await _refused(target, path)).line == number


async def test_an_import_leaves_what_is_there(store_url: str | Driver, tmp_path: Path) -> None:
    """A session of the same id is refused, also the original; an earlier import goes on."""
    path = tmp_path / "s.jsonl"
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source)
        await source.export_file(path)
        with pytest.raises(BadInput, match="original"):
            await source.import_file(path)
        await make(target)
        with pytest.raises(BadInput, match="another one"):
            await target.import_file(path)
        assert not (await target.head("s")).replica


async def test_a_deleted_session_comes_back_from_its_export(tmp_path: Path) -> None:
    """As a replica, and as a session that can be driven."""
    path = tmp_path / "s.tar"
    async with open_store(MemoryDriver()) as store:
        await make(store)
        await make(store, "other")
        await store.export_file(path, ["s"])
        await store.delete("s")
        assert (await store.import_file(path, into="s-again")).made == "s-again"
        async with store.session("s-again", create=False) as session:
            assert texts(session.transcript) == ["one", "two"]
            assert session.get("photo") == b"x" * 70_000
            await session.add("three")


async def test_into_needs_an_export_of_one_session(tmp_path: Path) -> None:
    """Else it is not known which one is meant."""
    async with open_store("memory:") as source, open_store("memory:") as target:
        await make(source)
        await source.export_file(tmp_path / "all.jsonl")
        with pytest.raises(BadInput, match="export one session"):
            await target.import_file(tmp_path / "all.jsonl", into="new")


async def test_a_dry_run_of_an_import_writes_nothing(tmp_path: Path) -> None:
    """It says what would be there."""
    async with open_store("memory:") as source, open_store("memory:") as target:
        await make(source)
        await source.export_file(tmp_path / "s.jsonl")
        planned = await target.import_file(tmp_path / "s.jsonl", dry_run=True)
        assert planned.entries == (await source.head("s")).seq
        assert [head async for head in target.sessions()] == []


async def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    """With what it is, or is not; an existing file is not replaced."""
    async with open_store("memory:") as store:
        await make(store)
        export = tmp_path / "s.jsonl"
        await store.export_file(export)
        lines = export.read_bytes()
        (tmp_path / "text").write_text("hello")
        with tarfile.open(tmp_path / "other.tar", "w") as tar:
            tar.add(tmp_path / "text", "text")
        (tmp_path / "newer.jsonl").write_bytes(lines.replace(b'"format":1', b'"format":2', 1))
        expected: dict[str, type[HoldfastError]] = {
            "missing": NotFound,
            "text": BadInput,
            "other.tar": BadInput,
            "newer.jsonl": NewerFormat,
        }
        for name, error in expected.items():
            with pytest.raises(error):
                await store.import_file(tmp_path / name)
        with pytest.raises(BadInput, match="exists already"):
            await store.export_file(export)
        with pytest.raises(NotFound):
            await store.export_file(tmp_path / "nowhere" / "s.jsonl")
        with pytest.raises(BadInput, match="inside"):
            await store.export_file(tmp_path / "s.tar", blobs=tmp_path / "blobs")
        assert export.read_bytes() == lines


async def test_a_blob_that_is_missing_is_named(tmp_path: Path) -> None:
    """In the export, and if its file is gone, in the import."""
    path, blobs = places("folder", tmp_path)
    assert blobs is not None
    async with open_store("memory:") as source, open_store("memory:") as target:
        await make(source)
        await source.export_file(path, blobs=blobs)
        (blob,) = blobs.iterdir()
        blob.write_bytes(b"other bytes")
        assert (await target.import_file(path, blobs=blobs, dry_run=False)).lost_blobs == (blob.name,)

"""Stored data that can be read and makes no sense: `Corrupt`, which names it, and nothing else is harmed.

One cell, chunk or file is changed at a time, in a copy of a store that has something of everything. Then
every way to read is taken. Only errors of ours come back, and none of them takes for ever.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from holdfast import HoldfastError, Registry, Store, open_store, tool
from holdfast.core.codec import Chunk
from holdfast.drivers.directory.lines import encode_line, parse, read_chunk
from holdfast.errors import Corrupt, LostBlob
from holdfast.limits import KEYFRAME_ENTRIES_MIN
from holdfast.messages import Media, Message, Text
from holdfast.store.work_queue import find_due
from tests.internals import engine_of
from tests.session.example_sessions import collect
from tests.unit.chunks_by_hand import compact, text

HERE = Path(__file__)


@tool(side_effects={"write"})
async def pay(amount: str) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effects={"write"}, scope="global")
async def publish(title: str) -> str:
    """Publish once."""
    return f"published {title}"


REGISTRY = Registry([pay, publish])


async def _fill(url: str) -> None:
    async with open_store(url) as store:
        for name in ("a", "b"):
            async with store.session(name, labels={"tenant": "acme"}) as session:
                async with session.run(agent="clerk", run_id=f"run-{name}"):
                    await session.add("hello")
                    await session.set("basket", {"tea": b"green", "pair": (1, 2)})
                    picture = Media(media_type="image/png", data=bytes(range(256)) * 400)
                    await session.add(Message(role="user", blocks=(Text("look"), picture)))
                    await session.checkpoint()
                    await REGISTRY.dispatch("pay", {"amount": "1"}, session=session)
                    await REGISTRY.dispatch("publish", {"title": name}, session=session)
                    await session.checkpoint()
                await session.rewind(version=1)
                await session.add("again")
                await session.checkpoint()
                for number in range(KEYFRAME_ENTRIES_MIN):
                    await session.set("number", number)
            async with store.session(name) as session, session.hold("printer"):
                await session.add("after the keyframe")
                await session.checkpoint()
        await store.fork("a", version=3, into="f")
        await store.submit("b", "to b", agent="clerk")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of each kind, not to be changed."""
    folder = tmp_path_factory.mktemp("filled")
    for scheme in ("dir", "sqlite"):
        anyio.run(_fill, f"{scheme}:{folder / scheme}")
    return folder


async def _look_everywhere(url: str) -> list[HoldfastError]:
    """Whatever else is raised fails the test; and so does who waits for ever."""
    found: list[HoldfastError] = []

    async def look(read: Callable[[], Awaitable[object]]) -> None:
        try:
            with anyio.fail_after(60):
                await read()
        except HoldfastError as error:
            found.append(error)

    async with open_store(url) as store:
        for name in ("a", "b", "f"):
            await look(partial(_read, store, name))
            await look(partial(store.head, name))
            await look(partial(store.overview, name))
            await look(partial(_collect, partial(store.tail, name, follow=False)))
            await look(partial(_collect, partial(store.runs, session=name)))
        listings: list[Callable[[], AsyncIterator[object]]] = [
            store.runs, store.workers, store.in_doubt, store.blobs
        ]  # fmt: skip
        for listing in listings:
            await look(partial(_collect, listing))
        await look(lambda: collect(store.sessions(label={"tenant": "acme"}, interrupted=False)))
        await look(lambda: store.collect_blobs())
        await look(
            lambda: engine_of(store).call(lambda: find_due(engine_of(store), ["clerk"], {}, 9, orphans=True))
        )
        for name in ("a", "b", "f"):
            await look(partial(_write, store, name))
            await look(partial(store.fork, name))
        for name in ("a", "f"):
            await look(partial(store.delete, name))
    return found


async def _collect(listing: Callable[[], AsyncIterator[object]]) -> None:
    await collect(listing())


async def _read(store: Store, name: str) -> None:
    state = await store.load(name)
    for message in state.transcript:
        for block in message.blocks if isinstance(message, Message) else ():
            assert not isinstance(block, Media) or block.data
    for key in state.keys:
        state.get(key)
    state.path()
    await store.load(name, 1)


async def _write(store: Store, name: str) -> None:
    async with store.session(name) as session, session.hold("printer"):
        await REGISTRY.dispatch("publish", {"title": "b"}, session=session)
        await session.checkpoint()


def _change_cell(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute(statement, values).rowcount > 0, statement
        connection.commit()
    finally:
        connection.close()


# The chunk of session a with this place, from 0 on.
_CHUNK = "session = 'a' AND seq = (SELECT seq FROM chunks WHERE session = 'a' ORDER BY seq LIMIT 1 OFFSET ?)"

CELLS: dict[str, tuple[str, tuple[object, ...]]] = {
    "a head that is no JSON": ("UPDATE sessions SET head = ? WHERE session = 'a'", ("junk",)),
    "a head that is no head": ("UPDATE sessions SET head = '{}' WHERE session = 'a'", ()),
    "a head that is bytes": ("UPDATE sessions SET head = ? WHERE session = 'a'", (b"\xff",)),
    "the head of another session": (
        "UPDATE sessions SET head = (SELECT head FROM sessions WHERE session = 'b') WHERE session = 'a'",
        (),
    ),
    "a seq that is no number": ("UPDATE sessions SET seq = 'x' WHERE session = 'a'", ()),
    "a sum that is none": ("UPDATE sessions SET sum = 7 WHERE session = 'a'", ()),
    "posted is text": ("UPDATE sessions SET posted = 'many' WHERE session = 'b'", ()),
    "a session without its row": ("DELETE FROM sessions WHERE session = 'a'", ()),
    "a row without its session": ("DELETE FROM chunks WHERE session = 'a'", ()),
    "the last chunk is missing": (
        "DELETE FROM chunks WHERE session = 'a' AND seq = (SELECT seq FROM sessions WHERE session = 'a')",
        (),
    ),
    "a chunk is missing": (f"DELETE FROM chunks WHERE {_CHUNK}", (5,)),
    "the first chunk is missing": (f"DELETE FROM chunks WHERE {_CHUNK}", (0,)),
    "an inherited chunk is missing": (f"DELETE FROM chunks WHERE {_CHUNK}", (1,)),
    "facts that are bytes": (f"UPDATE chunks SET facts = ? WHERE {_CHUNK}", (b"\xff\0", 2)),
    "details that are none": (f"UPDATE chunks SET details = ? WHERE {_CHUNK}", ("[[]]", 1)),
    "said by no entry": (f"UPDATE chunks SET said = ? WHERE {_CHUNK}", ('[["salt",1]]', 1)),
    "a sum of nothing": (f"UPDATE chunks SET sum = ? WHERE {_CHUNK}", (7, 1)),
    "an item that is none": ("UPDATE inbox SET item = '[]'", ()),
    "an item without words": ("UPDATE inbox SET item = json_remove(item, '$.message')", ()),
    "an item without a number": ("UPDATE inbox SET number = 'x'", ()),
    "a claim that is none": ("UPDATE claims SET record = 'junk'", ()),
    "a claim that is bytes": ("UPDATE claims SET record = ?", (b"\xff",)),
    "a keyframe of nothing": (
        "UPDATE keyframes SET body = json_set(body, '$.facts', json('{}'))",
        (),
    ),
    "a blob without a size": ("UPDATE blobs SET size = 'x'", ()),
    "a blob put at no time": ("UPDATE blobs SET put_at = 'yesterday'", ()),
    "a blob with a strange description": ("UPDATE blobs SET info = '[]'", ()),
    "a part that is text": ("UPDATE blob_parts SET data = 'x'", ()),
    "a pin at no entry": ("UPDATE pins SET seq = 'x'", ()),
}


@pytest.mark.parametrize("change", CELLS)
async def test_a_cell_that_makes_no_sense_is_named(filled: Path, tmp_path: Path, change: str) -> None:
    """Neither readers nor writers raise anything else, and the other sessions are listed."""
    path = tmp_path / "store"
    shutil.copy(filled / "sqlite", path)
    statement, values = CELLS[change]
    _change_cell(path, statement, *values)
    url = f"sqlite:{path}"
    async with open_store(url) as store:
        damaged: dict[str, HoldfastError] = {}
        listed = [one.session async for one in store.sessions(on_damaged=damaged.__setitem__)]
        if change != "a session without its row":
            assert sorted({*listed, *damaged}) == ["a", "b", "f"]
            assert {"b", "f"} <= set(listed) or change == "posted is text"
        assert all(isinstance(error, Corrupt) and "session" in str(error) for error in damaged.values())
    found = await _look_everywhere(url)
    harmless = ("a keyframe of nothing", "a pin at no entry")
    assert any(isinstance(error, Corrupt | LostBlob) for error in found) or change in harmless, found


class Parts(NamedTuple):
    """The parts of a chunk, as JSON."""

    facts: bytes
    details: bytes | None
    said: bytes | None


def _forge(chunks: Sequence[Parts], seq: int, change: Callable[[dict[str, Any]], None]) -> Iterator[Chunk]:
    """Change an entry and compute the chain anew, as any program can that writes to the file.

    `change` gets the members of the entry, with `at`, `details` and `content` beside them.
    """
    after = ""
    for stored in chunks:
        facts = json.loads(stored.facts)
        parts: dict[str, Any] = {"details": stored.details, "said": stored.said}
        place = seq - facts["seq"]
        if 0 <= place < len(facts["entries"]):
            fields = facts["entries"][place]
            change(fields)
            if "at" in fields:
                facts["at"] = fields.pop("at")
                facts.pop("us", None)
            for name, member in (("details", "details"), ("said", "content")):
                elements = json.loads(parts[name]) if parts[name] else [None] * len(facts["entries"])
                elements[place] = ["salt", fields.pop(member)] if member in fields else None
                parts[name], facts[name] = None, _digest_of(elements)
                if any(elements):
                    parts[name] = compact(elements)
                else:
                    del facts[name]
        data = compact(facts)
        after = text(hashlib.sha256(after.encode() + data).digest())
        yield Chunk(facts["seq"] + len(facts["entries"]) - 1, after, data, parts["details"], parts["said"])


def _digest_of(elements: list[Any]) -> str:
    return text(hashlib.sha256(b"".join(hashlib.sha256(compact(one)).digest() for one in elements)).digest())


def _with_other_entry(path: Path, name: str, seq: int, change: Callable[[dict[str, Any]], None]) -> None:
    connection = sqlite3.connect(path)
    where = "WHERE session = ? ORDER BY seq"
    rows = connection.execute(f"SELECT facts, details, said FROM chunks {where}", (name,)).fetchall()
    chunks = [
        Parts(facts.encode(), details and details.encode(), said and said.encode())
        for facts, details, said in rows
    ]
    for chunk in _forge(chunks, seq, change):
        parts = [None if part is None else part.decode() for part in (chunk.facts, chunk.details, chunk.said)]
        connection.execute(
            "UPDATE chunks SET sum = ?, facts = ?, details = ?, said = ? WHERE session = ? AND seq = ?",
            (chunk.sum, *parts, name, chunk.seq),
        )
    connection.execute(
        "UPDATE sessions SET sum = ?1, head = json_set(head, '$.sum', ?1) WHERE session = ?2",
        (chunk.sum, name),
    )
    connection.execute("DELETE FROM keyframes")
    connection.commit()
    connection.close()


def _setting(kind: str, body: dict[str, Any], **more: object) -> Callable[[dict[str, Any]], None]:
    return lambda fields: fields.update(kind=kind, must=True, body=body, **more)


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "an outcome of nothing": _setting("tool.completed", {"call": {"id": "x"}, "issued": 2}),
    "an end of nothing": _setting("tool.discarded", {"call": {"id": "x"}, "issued": 10**15}),
    "an undo of nothing": _setting("tool.undone", {"issued": 1, "by": 2}),
    "a note on nothing": _setting("tool.annotated", {"issued": 1, "notes": {}}),
    "an answer to nothing": _setting("approval.given", {"call": {"id": "x"}, "asked": 1, "by": "me"}),
    "a rewind to nothing": _setting("session.rewound", {"version": 9, "seq": 1, "transcript": []}),
    "a rewind through all numbers": _setting(
        "session.rewound", {"version": 0, "seq": 0, "transcript": [[1, 10**15]]}
    ),
    "a version that is its own ancestor": _setting("checkpoint.taken", {"version": 1}),
    "a run without an id": _setting("run.started", {}, run=""),
    "a time without a zone": lambda fields: fields.update(at="2026-01-01T00:00:00"),
    "no time": lambda fields: fields.update(at="yesterday"),
    "a message that is none": _setting(
        "message.added", {"role": "user"}, content={"role": True, "blocks": 7}
    ),
    "a value that is none": _setting(
        "state.set", {"key": "k"}, details={"value": {"$holdfast": ["bytes", 7]}}
    ),
    "a value without a tag": _setting("state.set", {"key": "k"}, details={"value": {"$holdfast": 7}}),
}


@pytest.mark.parametrize("change", FORGED)
async def test_a_forged_entry_is_named(filled: Path, tmp_path: Path, change: str) -> None:
    """Its chain is right, its entry refers to nothing. No walk over what is stored goes on for ever."""
    path = tmp_path / "store"
    shutil.copy(filled / "sqlite", path)
    _with_other_entry(path, "b", 40, FORGED[change])
    found = await _look_everywhere(f"sqlite:{path}")
    assert any(isinstance(error, Corrupt) and "session 'b'" in str(error) for error in found), found
    assert not any("session 'a'" in str(error) for error in found if isinstance(error, Corrupt))


async def test_a_fork_that_is_its_own_origin_is_named(filled: Path, tmp_path: Path) -> None:
    """Looking for where its history begins comes to an end."""
    path = tmp_path / "store"
    shutil.copy(filled / "sqlite", path)
    ours = "(SELECT uid FROM sessions WHERE session = 'f')"
    _change_cell(
        path,
        f"UPDATE chunks SET facts = json_set(facts, '$.entries[0].body.origin', 'f', "
        f"'$.entries[0].body.origin_uid', {ours}) "
        "WHERE session = 'f' AND facts LIKE '%\"kind\":\"session.forked\"%'",
    )
    found = await _look_everywhere(f"sqlite:{path}")
    assert any(isinstance(error, Corrupt) and "session 'f'" in str(error) for error in found), found


FILES: dict[str, list[bytes | None]] = {
    "sessions/a/journal.jsonl": [None, b"", b"junk\n", b"{}\n"],
    "sessions/a/session.json": [b"[]", b"\xff"],
    "sessions/a/head.json": [None, b"[]", b"\xff"],
    "sessions/a/keyframe.json": [None, b"{}"],
    "sessions/a/lock": [None],
    "sessions/b/inbox/1.json": [b"[]", b"\xff"],
    "claims/*.json": [b"[]", b'{"key":"k","record":"junk"}'],
    "holders/x.json": [b"[]", b'{"holder":"y","name":"n","beat_s":1,"term_s":1}'],
    "pins/*/*": [b"[]"],
    "blobs/*/*.info": [b"[]"],
}


@pytest.mark.parametrize(("name", "content"), [(name, one) for name in FILES for one in FILES[name]])
async def test_a_file_that_makes_no_sense_is_named(
    filled: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    """Removed, or with something else in it."""
    path = tmp_path / "store"
    shutil.copytree(filled / "dir", path)
    for file in list(path.glob(name)) or [path / name]:
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    async with open_store(f"dir:{path}") as store:
        damaged: list[str] = []
        listed = [one.session async for one in store.sessions(on_damaged=lambda *one: damaged.append(one[0]))]
        assert sorted([*listed, *damaged]) == ["a", "b", "f"]
        assert {"b", "f"} <= set(listed)
    await _look_everywhere(f"dir:{path}")


async def test_a_holder_whose_heartbeat_makes_no_sense_is_named(tmp_path: Path) -> None:
    """Whether it may be alive is not guessed at; other workers are listed."""
    url = f"dir:{tmp_path / 'store'}"
    async with open_store(url) as first:
        async with first.session("a"):
            holder = (await first.head("a")).lease
            assert holder is not None
            (tmp_path / "store" / "holders" / f"{holder.holder}.json").write_text("{}")
            async with open_store(url) as second:
                with pytest.raises(Corrupt, match=f"holder '{holder.holder}'"):
                    async with second.session("a"):
                        pass
                assert await collect(second.workers()) == []


async def test_a_lease_of_a_holder_whose_name_is_a_path_is_refused(filled: Path, tmp_path: Path) -> None:
    """No file outside the store is read, whatever a line says."""
    path = tmp_path / "store"
    shutil.copytree(filled / "dir", path)
    journal = path / "sessions" / "a" / "journal.jsonl"
    lines = [parse(line, 0) for line in journal.read_bytes().splitlines(keepends=True)]
    chunks = [read_chunk(line) for line in lines]
    change = _setting("lease.taken", {"holder": "../../x", "name": "n"})
    parts = [Parts(chunk.facts, chunk.details, chunk.said) for chunk in chunks]
    forged = list(_forge(parts, chunks[-1].seq, change))
    journal.write_bytes(
        b"".join(encode_line(one, line.ends) for one, line in zip(forged, lines, strict=True))
    )
    (journal.parent / "head.json").unlink()
    (journal.parent / "keyframe.json").unlink(missing_ok=True)
    async with open_store(f"dir:{path}") as store:
        with pytest.raises(Corrupt, match="no name"):
            async with store.session("a"):
                pass


def test_all_of_it_is_the_same_without_assertions() -> None:
    """`python -O` leaves out every `assert`; none of them is what refuses input or stored data."""
    chosen = "forged or is_a_path or lead_out or lock_is_named or (surrogate and hold)"
    files = [
        HERE,
        HERE.parents[1] / "store" / "test_directory.py",
        HERE.parents[1] / "session" / "test_names.py",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-O",
            "-m",
            "pytest",
            "-qx",
            "-W",
            "ignore",
            "-k",
            f"({chosen}) and not trio",
            *files,
        ],
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout

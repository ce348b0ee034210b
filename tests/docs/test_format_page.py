"""`docs/format.md` draws what is really stored."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import holdfast
from holdfast.core import codec, entries
from holdfast.core.session_state import Keyframe
from holdfast.drivers.directory.layout import FORMAT
from holdfast.drivers.postgres.schema import migrations as postgres_migrations
from holdfast.drivers.sqlite.schema import APPLICATION_ID, migrations
from holdfast.session.effect_claims import Claim, Said
from tests.docs.blocks import ROOT, find_blocks, run_page
from tests.stores import rows, server_url

PAGE = ROOT / "docs" / "format.md"
TEXT = PAGE.read_text()


def section_under(heading: str) -> str:
    """One section of the page, up to the next heading."""
    section = TEXT.split(f"\n{heading}\n", 1)[1]
    return re.split(r"\n#{1,3} ", section, maxsplit=1)[0]


def rows_under(heading: str) -> Iterator[list[str]]:
    """The cells of the tables in one section of the page, without their headings."""
    for line in section_under(heading).splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line[1:-1].split("|")]


def kind_rows() -> dict[str, list[str]]:
    headings = ("### Session", "### Runs and requests", "### Messages", "### Tool calls", "### State")
    rows = [cells for heading in headings for cells in rows_under(heading)]
    return {cells[0].split("`")[1]: cells for cells in rows}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the page defines, with the standard library alone: `Chunk`, `check` and `read_line`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        return run_page(PAGE)


@holdfast.tool(side_effects={"mutate"})
async def weigh(ctx: holdfast.tools.ToolContext[None], grams: int) -> str:
    """Weigh."""
    ctx.report("on the scales")
    return f"{grams} g"


async def write_some_of_everything(store: holdfast.Store) -> None:
    """Many kinds of entries, with text that JSON must escape, a rewind and a fork."""
    registry = holdfast.Registry([weigh])
    async with store.session("a", labels={"é": '"quoted"'}) as session:
        await session.set_budget(holdfast.Budget(usd=1.5, seconds=1e-5 + 60))
        async with session.run(agent="clerk", config={"temperature": 0.1, "deep": [1, {"x": None}]}) as run:
            await session.add('Grüße, "世界" \\ \u2028 \x7f 🙂\n\ttab')
            async with run.request(reserve_usd=0.05) as request:
                call = holdfast.messages.ToolCall(id="c", name="look", args={"n": 10**18, "f": 1e22})
                await request.reply(
                    holdfast.messages.Message(role="assistant", blocks=(call,)), cost_usd=0.1 + 0.2
                )
            result = holdfast.messages.ToolResult(call_id="c", content="ok", value=[1.0, -0.0])
            await session.add(holdfast.messages.Message(role="tool", blocks=(result,)))
            await registry.dispatch("weigh", {"grams": 5}, session=session)
            await registry.dispatch("weigh", {"grams": "many"}, session=session)
            await session.set("state", {"when": datetime(2026, 1, 1, tzinfo=UTC), "big": 2**80})
            await session.checkpoint()
            await session.add("more")
            await registry.dispatch("weigh", {"grams": 6}, session=session)
            await session.checkpoint("named")
        await session.rewind(steps=1)
    await store.fork("a", version=1, into="b")
    await store.clean("a", checkpoints=False)


def stored_in_sqlite(page: dict[str, Any], path: Path, session: str) -> list[Any]:
    query = "SELECT sum, facts, details, said FROM chunks WHERE session = ? ORDER BY seq"
    with sqlite3.connect(path) as db:
        return [page["Chunk"](*row) for row in db.execute(query, (session,))]


def stored_in_directory(page: dict[str, Any], path: Path, session: str) -> list[Any]:
    lines = (path / "sessions" / session / "journal.jsonl").read_text().split("\n")[:-1]
    return [page["read_line"](line) for line in lines]


stored_anywhere = pytest.mark.parametrize(
    ("scheme", "read"), [("sqlite", stored_in_sqlite), ("dir", stored_in_directory)]
)
Read = Callable[[dict[str, Any], Path, str], list[Any]]


@stored_anywhere
async def test_a_stored_journal_can_be_checked_by_the_page_alone(
    scheme: str, read: Read, page: dict[str, Any], tmp_path: Path
) -> None:
    """Also across a fork, after an erasure, and without details and what was said."""
    path, check = tmp_path / "store", page["check"]
    async with holdfast.open_store(f"{scheme}:{path}") as store:
        await write_some_of_everything(store)
        heads = {head.session: head async for head in store.sessions()}
    origin, fork = read(page, path, "a"), read(page, path, "b")
    for part in ("details", "said"):
        assert any('"erased":' in (getattr(chunk, part) or "") for chunk in origin)
        assert any('["' in (getattr(chunk, part) or "") for chunk in origin)
    first = msgspec.json.decode(fork[0].facts)["seq"]
    shared = [chunk for chunk in origin if msgspec.json.decode(chunk.facts)["seq"] < first]
    for session, chunks in (("a", origin), ("b", [*shared, *fork])):
        sum = heads[holdfast.records.SessionId(session)].sum
        assert check(chunks) == sum
        assert check([chunk._replace(details=None, said=None) for chunk in chunks], parts=()) == sum


@stored_anywhere
async def test_the_page_alone_finds_any_change(
    scheme: str, read: Read, page: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever part of a chunk it is in, and whether or not the element was erased."""
    path, check = tmp_path / "store", page["check"]
    async with holdfast.open_store(f"{scheme}:{path}") as store:
        await write_some_of_everything(store)
    chunks = read(page, path, "a")
    for place, chunk in enumerate(chunks):
        number = msgspec.json.decode(chunk.facts)["seq"]
        for part in chunk._fields:
            stored = getattr(chunk, part)
            for other in other_values(stored, None if part in ("sum", "facts") else "[null]"):
                changed = [*chunks[:place], chunk._replace(**{part: other}), *chunks[place + 1 :]]
                with pytest.raises((AssertionError, ValueError, LookupError)) as found:
                    check(changed)
                if isinstance(found.value, AssertionError) and str(found.value):
                    assert str(found.value).split(":")[0] in (f"entry {number}", f"entry {number + 1}")
        if place + 1 < len(chunks):
            with pytest.raises(AssertionError):
                check([*chunks[:place], *chunks[place + 1 :]])


def other_values(stored: str | None, instead: str | None) -> Iterator[str | None]:
    """Values that are not what is stored: a letter changed somewhere, or the part missing, or there."""
    if stored is None:
        yield instead
        return
    if instead is not None:
        yield None
    for place in range(0, len(stored), max(1, len(stored) // 7)):
        if stored[place].isalnum():
            # The last letter of a digest has bits that mean nothing: these letters differ in others, too.
            yield stored[:place] + ("A" if stored[place] in "wxyz" else "x") + stored[place + 1 :]


def test_the_chunks_that_are_drawn_are_those_that_are_checked(page: dict[str, Any]) -> None:
    """The parts of the two chunks are on the page twice."""
    drawn = [block.source.splitlines() for block in find_blocks(PAGE, "json")]
    assert drawn == [[part for part in chunk[1:] if part is not None] for chunk in page["chunks"]]


def test_every_kind_is_on_the_page_with_its_fields() -> None:
    """No more and no less than what is stored, and where."""
    fields = {kind: names_in(cells[1]) for kind, cells in kind_rows().items()}
    details = {kind: names_in(cells[2]) for kind, cells in kind_rows().items()}
    stored = {
        kind: {field.encode_name for field in msgspec.structs.fields(body)}
        for kind, body in entries.KINDS.items()
    }
    erasable = {kind: set(entries.DETAILS.get(body, ())) for kind, body in entries.KINDS.items()}
    assert details == erasable
    # Of an inbox item, only the words of a person are details.
    in_both = {"inbox.taken": {"item"}}
    assert fields == {kind: stored[kind] - erasable[kind] | in_both.get(kind, set()) for kind in stored}


def names_in(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cell)))


async def test_the_kinds_with_a_content_have_one_on_the_page(store_url: str) -> None:
    """And others have none."""
    async with holdfast.open_store(store_url) as store:
        await write_some_of_everything(store)
        found = {
            entry.kind
            for session in ("a", "b")
            async for entry in store.tail(session, follow=False)
            if entry.content is not None or entry.erased
        }
    assert found >= {"message.added", "model.replied", "tool.completed", "tool.reported", "tool.refused"}
    assert found <= {kind for kind, cells in kind_rows().items() if cells[3]}


def test_the_page_marks_the_kinds_that_must_be_understood() -> None:
    """A star, and nothing else, says so."""
    marked = {kind for kind, cells in kind_rows().items() if cells[0].endswith("*")}
    assert marked == {entries.KIND_OF[body] for body in entries.MUST}


def test_the_fields_of_facts_and_their_entries_are_on_the_page_in_their_order() -> None:
    """Those of a chunk that has them all."""
    first, second = full_chunk()
    rows = [cells[0].strip("`") for cells in rows_under("### Facts")]
    facts = msgspec.json.decode(second.facts)
    assert rows == [*facts, *max(facts["entries"], key=len)]
    assert msgspec.json.decode(first.facts).keys() < facts.keys()


def test_the_elements_of_details_and_said_are_on_the_page() -> None:
    """Nothing, a value with its salt, and what is left of an erased one."""
    _, chunk = full_chunk()
    assert chunk.said is not None
    erased = codec.erase(chunk.said, [0], "test")
    assert erased is not None
    forms = [re.sub(r"[\w-]{16,}", "…", cells[0].strip("`")) for cells in rows_under("### Details and said")]
    left, none, *_ = msgspec.json.decode(erased)
    salt, _ = msgspec.json.decode(chunk.said)[0]
    assert none is None
    assert left.keys() == {"erased"}
    assert len(salt) == 16
    assert forms == ["null", '["salt",value]', '{"erased":"digest"}']


def full_chunk() -> Sequence[codec.Chunk]:
    """A chunk with little in it, and one with every field."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    said = (entries.MessageAdded(role="user", title="Hello"), b'{"role":"user"}')
    later = at + timedelta(seconds=1)
    return codec.seal(
        [
            codec.encode_entry(entries.CheckpointTaken(version=1), 1, at, None, 1),
            codec.encode_entry(said[0], 2, at, None, 2, said[1]),
            codec.encode_entry(entries.LeaseTaken(holder="h", name="n"), 3, later, "another", 2),
            codec.encode_entry(entries.LeaseReleased(), 4, later, "a run", 2),
        ],
        codec.GENESIS,
    )


def test_the_numbers_of_the_format_are_those_of_the_code() -> None:
    """Chunk, file, schema and directory."""
    numbers = re.findall(r"^\| a[^|]*\| (\d+) \|", TEXT, re.MULTILINE)
    assert [int(number) for number in numbers] == [
        codec.VERSION, len(migrations()), len(postgres_migrations()), FORMAT
    ]  # fmt: skip
    assert f"`0x{APPLICATION_ID:X}` (`{APPLICATION_ID.to_bytes(4).decode()}`)" in TEXT


@pytest.mark.parametrize("record", [Claim, Said])
def test_the_claims_on_operations_are_on_the_page(record: type[msgspec.Struct]) -> None:
    """With their fields, in their order."""
    fields = ", ".join(field.encode_name for field in msgspec.structs.fields(record))
    assert f"`{{{fields}}}`" in TEXT


def test_the_keyframe_is_on_the_page() -> None:
    """With its fields, in their order."""
    assert f"`{{{', '.join(Keyframe.__struct_fields__)}}}`" in section_under("## Beside the journal")


async def test_the_tables_of_a_sqlite_store_are_on_the_page(tmp_path: Path) -> None:
    """With their columns, in their order."""
    async with holdfast.open_store(tmp_path / "store.db"):
        pass
    db = apsw.Connection(str(tmp_path / "store.db"))
    found: dict[str, list[str]] = {}
    tables: list[Any] = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for (table,) in tables:
        columns: list[Any] = db.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        found[table] = [column for (column,) in columns]
    views: list[Any] = db.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall()
    db.close()
    assert documented_tables() == found
    section = section_under("## A SQLite store")
    assert all(f"`{view}`" in section for (view,) in views)


def documented_tables() -> dict[str, list[str]]:
    """The tables of a SQLite store, and their columns."""
    return {
        cells[0].strip("`"): re.findall(r"`(\w+)`", cells[1]) for cells in rows_under("## A SQLite store")
    }


async def test_the_differences_of_a_postgres_store_are_on_the_page(schema: str) -> None:
    """Every table and column that only one of the two has, and no other."""
    async with holdfast.open_store(server_url(schema)):
        pass
    query = f"""
        SELECT table_name::text, array_agg(column_name::text) FROM information_schema.columns
        WHERE table_schema = '{schema}' AND table_name IN (SELECT tablename FROM pg_tables)
        GROUP BY table_name
    """
    found = {table: set(columns) for table, columns in rows(schema, query)}
    expected: dict[str, set[str]] = {}
    for table, *differences in rows_under("## A PostgreSQL store"):
        expected[table.strip("`")] = set(re.findall(r"`([a-z_]+)`", differences[0]))
    sqlite = {table: set(columns) for table, columns in documented_tables().items()}
    differing = {table: sqlite[table] ^ columns for table, columns in found.items() if table in sqlite}
    renamed = {table: columns for table, columns in found.items() if table not in sqlite}
    for table, columns in renamed.items():
        (other,) = expected.pop(table)  # The one that it is in the place of.
        assert sqlite.pop(other) == columns
    assert {table: columns for table, columns in differing.items() if columns} == expected
    assert sqlite.keys() == differing.keys()


async def test_the_examples_of_values_are_what_is_stored() -> None:
    """Each row's JSON loads as a value that is stored as that JSON again."""
    from holdfast.core.values import Values

    values = Values()
    examples = [
        found for row in rows_under("## Messages and values") for found in re.findall(r"`(\{.*?\})`", row[1])
    ]
    assert len(examples) > 8
    for example in examples:
        tag = msgspec.json.decode(example)["$holdfast"][0]
        if tag not in ("record", "enum", "opaque", "fractions.Fraction"):
            assert values.encode(values.decode(example.encode())).decode() == example

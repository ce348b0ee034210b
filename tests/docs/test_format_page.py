"""`docs/format.md` draws what is really stored."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import holdfast
from holdfast.core import codec, entries
from holdfast.drivers.directory.layout import FORMAT
from holdfast.drivers.sqlite.schema import APPLICATION_ID, migrations
from holdfast.session.effect_claims import Claim, Said
from tests.docs.blocks import ROOT, run_page

PAGE = ROOT / "docs" / "format.md"
TEXT = PAGE.read_text()


def rows_under(heading: str) -> Iterator[list[str]]:
    """The cells of the tables in one section of the page, without their headings."""
    section = TEXT.split(f"\n{heading}\n", 1)[1]
    section = re.split(r"\n#{1,3} ", section, maxsplit=1)[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def kind_rows() -> dict[str, list[str]]:
    headings = ("### Session", "### Runs and requests", "### Messages", "### Tool calls", "### State")
    rows = [cells for heading in headings for cells in rows_under(heading)]
    return {cells[0].split("`")[1]: cells for cells in rows}


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], str]:
    """The function that the page defines, with hashlib, json and base64 alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        names = run_page(PAGE)
    found: Callable[[list[str]], str] = names["check"]
    return found


async def write_some_of_everything(store: holdfast.Store) -> None:
    """Many kinds of line, with text that JSON must escape, a rewind and a fork."""
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
            await session.set("state", {"when": datetime(2026, 1, 1, tzinfo=UTC), "big": 2**80})
            await session.checkpoint()
            await session.add("more")
            await session.checkpoint("named")
        await session.rewind(steps=1)
    await store.fork("a", version=1, into="b")
    await store.clean("a", checkpoints=False)


def stored_in_sqlite(path: Path, session: str) -> list[str]:
    query = "SELECT line FROM entries WHERE session = ? ORDER BY seq"
    with sqlite3.connect(path) as db:
        return [line for (line,) in db.execute(query, (session,))]


def stored_in_directory(path: Path, session: str) -> list[str]:
    lines = (path / "sessions" / session / "journal.jsonl").read_text().split("\n")[:-1]
    return [re.sub(r',"end":\d+\}$', "}", line) for line in lines]


@pytest.mark.parametrize(("scheme", "read"), [("sqlite", stored_in_sqlite), ("dir", stored_in_directory)])
async def test_a_stored_journal_can_be_checked_by_the_page_alone(
    scheme: str,
    read: Callable[[Path, str], list[str]],
    check: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Also across a fork, and after an erasure."""
    path = tmp_path / "store"
    async with holdfast.open_store(f"{scheme}:{path}") as store:
        await write_some_of_everything(store)
        heads = {head.session: head async for head in store.sessions()}
    origin, fork = read(path, "a"), read(path, "b")
    assert any('"erased":' in line for line in origin)
    assert check(origin) == heads[holdfast.records.SessionId("a")].sum
    first = msgspec.json.decode(fork[0])["seq"]
    assert check([*origin[: first - 1], *fork]) == heads[holdfast.records.SessionId("b")].sum


def test_every_kind_is_on_the_page_with_its_fields() -> None:
    """No more and no less than what is stored."""
    documented = {
        kind: set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cells[1])))
        for kind, cells in kind_rows().items()
    }
    stored = {
        kind: {field.encode_name for field in msgspec.structs.fields(body)}
        for kind, body in entries.KINDS.items()
    }
    assert documented == stored


def test_the_page_marks_the_kinds_that_must_be_understood() -> None:
    """A star, and nothing else, says so."""
    marked = {kind for kind, cells in kind_rows().items() if cells[0].endswith("*")}
    assert marked == {entries.KIND_OF[body] for body in entries.MUST}


def test_the_fields_of_a_line_are_on_the_page_in_their_order() -> None:
    """As they stand in every line."""
    documented = [cells[0].strip("`") for cells in rows_under("## A journal")]
    assert documented == [field.encode_name for field in msgspec.structs.fields(codec.Line)]


def test_the_numbers_of_the_format_are_those_of_the_code() -> None:
    """Line, file and directory."""
    numbers = re.findall(r"^\| a[^|]*\| (\d+) \|", TEXT, re.MULTILINE)
    assert [int(number) for number in numbers] == [codec.VERSION, len(migrations()), FORMAT]
    assert f"`0x{APPLICATION_ID:X}`" in TEXT


@pytest.mark.parametrize("record", [Claim, Said])
def test_the_claims_on_operations_are_on_the_page(record: type[msgspec.Struct]) -> None:
    """With their fields, in their order."""
    fields = ", ".join(field.encode_name for field in msgspec.structs.fields(record))
    assert f"`{{{fields}}}`" in TEXT


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
    documented = {
        cells[0].strip("`"): re.findall(r"`(\w+)`", cells[1]) for cells in rows_under("## A SQLite store")
    }
    assert documented == found
    section = TEXT.split("## A SQLite store", 1)[1]
    assert all(f"`{view}`" in section for (view,) in views)


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

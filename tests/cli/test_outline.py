"""`show` without `--all`: each call once, and nothing that is routine; the version after a rewind."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.blocking
import holdfast.cli
from holdfast.cli.outline import OutlineRow, outline
from holdfast.cli.timeline import Timeline
from tests.cli.cli_processes import Done
from tests.foreign_messages import CONVERSATIONS


async def rows_of(store: holdfast.Store, session: str, *, held: bool = False) -> list[OutlineRow]:
    entries = [entry async for entry in store.tail(session, follow=False)]
    effects = (await store.load(session)).facts.effects.rows
    return outline(Timeline.of(entries, effects, held=held))


def shown(rows: list[OutlineRow]) -> list[tuple[str, str, str, str]]:
    return [(row.kind, row.what, ", ".join([*row.earlier, row.status]), row.detail) for row in rows]


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
async def refund(order: str) -> str:
    """Give it back."""
    return f"refunded {order}"


@holdfast.tool(side_effects={"mutate"})
async def pay(order: str) -> str:
    """Fail in the middle."""
    raise OSError("reset")


@holdfast.tool(side_effects={"read"})
async def look(n: int) -> str:
    """Look."""
    return f"{n} is there"


@pytest.mark.parametrize("format", CONVERSATIONS)
async def test_a_loop_of_ones_own_has_each_call_with_its_result(format: str) -> None:
    """Call and result are in two messages of a foreign format; they are one row."""
    async with holdfast.open_store("memory:") as store:
        async with store.session("s") as session:
            for data in CONVERSATIONS[format]:
                await session.add(data, format=format)
        rows = await rows_of(store, "s")
    calls = [row for row in rows if row.kind == "tool"]
    assert [(row.what, row.detail) for row in calls] == [("look(n=1)", "18 degrees"), ("note(it)", "noted")]
    said = [" ".join(row.what.split()) for row in rows if row.kind == "message"]
    assert said == ["user: Is it warm?"]
    assert [row.what for row in rows if row.kind == "model" and row.what][-1] == "That I will not say."


async def test_what_becomes_of_a_call_is_in_its_row() -> None:
    """Questions, answers, doubts and verdicts, in their order. Runs that end well and leases are left out."""
    registry = holdfast.Registry([refund, pay, look])
    async with holdfast.open_store("memory:") as store:
        async with store.session("s") as session, session.run(agent="clerk"):
            await session.add("Do it")
            await registry.dispatch("refund", {"order": "7"}, call_id="c1", session=session)
            await registry.dispatch("pay", {"order": "7"}, call_id="c2", session=session)
            await registry.dispatch("lok", {"n": 1}, call_id="c3", session=session)
            await session.checkpoint()
        await store.approve("s", "c1", by="ann")
        await store.resolve("s", "c2", "landed", by="bob", result="receipt 7")
        async with store.session("s") as session:
            await registry.dispatch("refund", {"order": "7"}, call_id="c1", session=session)
        rows = await rows_of(store, "s")
    found = shown(rows)
    assert [(kind, what, status) for kind, what, status, _ in found] == [
        ("message", "user: Do it", ""),
        ("tool", 'refund(order="7")', "approved by ann, completed"),
        ("tool", 'pay(order="7")', "in_doubt, landed"),
        ("refused", found[3][1], "refused"),
    ]
    assert found[1][3] == "refunded 7"
    assert found[2][3] == "settled by bob: receipt 7"


async def test_a_reply_names_its_calls_and_a_call_without_a_row_is_in_it() -> None:
    """A call of a reply that was made by no tool and has no result is not lost."""
    call = holdfast.messages.ToolCall(id="c1", name="look", args={"n": 1})
    other = holdfast.messages.ToolCall(id="c2", name="later", args={})
    async with holdfast.open_store("memory:") as store:
        async with store.session("s") as session, session.run() as run:
            async with run.request(model="m") as request:
                await request.reply(holdfast.messages.Message(role="assistant", blocks=(call,)))
            await holdfast.Registry([look]).dispatch_step(session)
            async with run.request(model="m") as request:
                await request.reply(holdfast.messages.Message(role="assistant", blocks=(other,)))
        rows = await rows_of(store, "s")
    assert [(row.kind, row.what) for row in rows] == [
        ("model", "calls look"),
        ("tool", "look(n=1)"),
        ("model", "→ later()"),
    ]


def test_the_version_after_a_rewind_is_the_one_that_the_session_is_at(
    tmp_path: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """In `show`, `sessions` and `diff`, and the next one that is taken counts on."""
    with (
        holdfast.blocking.open_store(f"sqlite:{tmp_path}/holdfast.db") as store,
        store.session("s") as session,
    ):
        for number in range(3):
            session.add(f"message {number}")
            session.checkpoint()

    def versions() -> tuple[int, int, list[str]]:
        one: Any = call_here(tmp_path, "show s --json").json["session"]
        (listed,) = call_here(tmp_path, "sessions --json").json["sessions"]
        text = call_here(tmp_path, "show s").out
        return (
            one["version"],
            listed["version"],
            [line for line in text.splitlines() if line.startswith("version ")],
        )

    before = versions()
    assert before[:2] == (3, 3)
    assert [line.split() for line in before[2]] == [["version", "3"]]
    assert call_here(tmp_path, "rewind s --version 1 --yes").code == 0
    after = versions()
    assert after[:2] == (1, 1)
    assert [line.split() for line in after[2]] == [["version", "1,", "rewound", "from", "3"]]
    same = call_here(tmp_path, "diff s 1")
    assert same.err == "versions 1 and 1 are the same\n"
    with (
        holdfast.blocking.open_store(f"sqlite:{tmp_path}/holdfast.db") as store,
        store.session("s") as session,
    ):
        session.add("another way")
        session.checkpoint()
    assert versions()[:2] == (4, 4)


def test_the_latest_rows_are_those_of_the_outline(
    tmp_path: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """`--last 1` is the last thing that happened, and no lease."""
    with (
        holdfast.blocking.open_store(f"sqlite:{tmp_path}/holdfast.db") as store,
        store.session("s") as session,
    ):
        session.add("first")
        session.add("second")
    text = call_here(tmp_path, "show s --last 1").out
    assert "user: second" in text
    assert "first" not in text.partition("timeline")[2]
    assert "lease released" in call_here(tmp_path, "log s --last 1 --all").out
    assert call_here(tmp_path, "show s --last 0").code == 0


_PLAIN = frozenset("–—…«»§·×÷≤≥←↑→↓↔■□●○◊►◄▲▼─│└├")
"""What fonts for terminals have: a part of WGL4."""


def test_no_sign_of_the_command_line_is_missing_in_common_fonts() -> None:
    """Every character that it prints by itself is ASCII, or one of an old and common set."""
    folder = Path(holdfast.cli.__file__).parent
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            # `console.py` has those that it escapes.
            if isinstance(text, str) and path.name != "console.py":
                odd = {one for one in text if not one.isascii()} - _PLAIN
                found |= {path.name: odd} if odd else {}
    assert not found

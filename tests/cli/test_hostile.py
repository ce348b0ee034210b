"""What users, models and tools said is shown to people as text, whatever is in it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast
from holdfast.cli.app import ALIASES, make_app
from holdfast.cli.console import visible
from holdfast.cli.store_access import list_ids
from holdfast.messages import Media, Message, Text
from holdfast.records import Plan, PlanStep
from tests.cli.cli_processes import Done, Terminal
from tests.cli.hostile import ESCAPES, HOSTILE, MARKUP, clerk

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
Q = shlex.quote(HOSTILE)
LINES: dict[str, list[tuple[str, int]]] = {
    "sessions": [("", 0), ("--interrupted", 0), (f"--label {Q}", 2)],
    "show": [("look", 0), ("refuse", 0), ("charge --brief", 0), ("look --last 3", 0), (Q, 2)],
    "tail": [("look", 0), ("refuse -n 0", 0), ("charge", 0)],
    "diff": [("look 1", 0), ("look 1 99", 3)],
    "export": [("look", 0), ("refuse --form markdown", 0), ("look --form jsonl", 0), (f"look --form {Q}", 2)],
    "stats": [("", 0), ("refuse", 0)],
    "blobs": [("", 0), ("gc --alone --grace 0", 0)],
    "workers": [("", 0)],
    "demo": [],
    "ui": [],
    "run": [
        (f"hostile.py 'Look {MARKUP}' --session new", 0),
        (f"hostile.py {Q}", 0),
        ("hostile.py Break", 6),
        ("hostile.py Ask", 5),
        ("hostile.py Look --deps hostile.py:explode", 1),
        (f"hostile.py:{Q} Look", 3),
        (f"{Q}.py Look", 3),
    ],
    "resume": [("hostile.py torn", 0), ("hostile.py --all", 0), ("hostile.py break", 6)],
    "replay": [("look hostile.py", 0), ("--all hostile.py", 0), (f"{Q} hostile.py", 2)],
    "worker": [("hostile.py --until-idle", 0)],
    "submit": [(f"look {Q}", 0), (f"other Hello --agent {Q}", 0)],
    "cancel": [(f"look --reason {Q} --by {Q}", 0)],
    "pending": [("", 0), ("ask", 0)],
    "notify": [
        ("--command true --once", 0),
        (f"--command {Q} --name {Q} --once --attempts 1", 1),
        (f"--webhook {Q} --once", 2),
    ],
    "approve": [("ask @7", 0), (f"ask {Q}", 3), (f"ask @7 --args {Q}", 2)],
    "refuse": [(f"ask @7 --reason {Q} --by {Q}", 0)],
    "resolve": [(f"charge @7 landed --result {Q} --note {Q}", 0), (f"charge {Q} landed", 3)],
    "resolve-operation": [(f"{Q} landed", 3)],
    "fork": [("look --version 1 --into copy", 0), (f"look --into {Q}", 2)],
    "rewind": [("refuse --version 1", 0), ("refuse --steps 99", 3)],
    "copy": [
        ("sqlite:holdfast.db sqlite:copied.db", 0),
        (f"sqlite:holdfast.db sqlite:other.db {Q}", 2),
        (f"sqlite:holdfast.db sqlite:third.db look --as {Q}", 2),
    ],
    "import": [("client.json", 1), (f"{Q}", 3)],
    "clean": [("look --yes", 0), (f"{Q} --yes", 2)],
    "mcp": [
        ("wrap client.json", 2),
        ("wrap client.json --yes", 0),
        (f"wrap client.json --only {Q} --undo --yes", 0),
        (f"wrap client.json --only {Q}! --yes", 3),
        (f"wrap {Q} --yes", 3),
        ("wrap odd.json --yes", 1),
        ("check ./server.py", 0),
        ("check ./server.py --config rules.toml", 1),
        ("check ./refusing.py", 1),
        (f"check {Q}", 3),
        (f"check ./server.py --config {Q}", 2),
        (f"check --url http://{Q}", 2),
    ],
    "completion": [],
}
"""Every command, with what follows it and the code it ends with; none where nothing stored is shown."""
ANSWERS = ("export", "run", "resume")
"""What they print has lines of its own."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which all that can be chosen by users, models and tools is hostile."""
    place = tmp_path_factory.mktemp("hostile")
    shutil.copy(Path(__file__).with_name("hostile.py"), place)
    anyio.run(_write, place)
    _write_servers(place)
    return place


SERVER = """#!PYTHON
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **SAID}), flush=True)
"""


def _write_servers(place: Path) -> None:
    """Servers of MCP, and what lists and declares them."""
    server: Any = {"command": HOSTILE, "args": [HOSTILE], "env": {HOSTILE: HOSTILE}}
    remote = {"type": "http", "url": f"https://example.org/{HOSTILE}", "headers": {"A": HOSTILE}}
    servers = {HOSTILE: server, "odd": {"command": 7}, "remote": remote, "listed": [HOSTILE]}
    (place / "client.json").write_text(json.dumps({"mcpServers": servers}))
    twice = ", ".join([f"{json.dumps(HOSTILE)}: {{}}"] * 2)
    (place / "odd.json").write_text(f'{{"mcpServers": {{{twice}}}}}')
    quoted = "".join(f"\\U{ord(one):08x}" for one in HOSTILE)
    (place / "rules.toml").write_text(f'[tools."{quoted}?"]\nredact = ["{quoted}"]\n')
    schema = {"type": "object", "properties": {HOSTILE: {"description": HOSTILE}}}
    tool = {"name": HOSTILE, "description": HOSTILE, "inputSchema": schema, "annotations": {"title": HOSTILE}}
    for name, said in {
        "server.py": {"result": {"tools": [tool, {**tool, "name": MARKUP}]}},
        "refusing.py": {"error": {"code": -32603, "message": HOSTILE}},
    }.items():
        text = SERVER.replace("PYTHON", sys.executable).replace("SAID", repr(said))
        (place / name).write_text(text, encoding="utf-8")
        (place / name).chmod(0o700)


async def _write(place: Path) -> None:
    async with holdfast.open_store(f"sqlite:{place}/holdfast.db") as store:
        for word, status in {
            "Refuse": "completed",
            "Charge": "waiting",
            "Ask": "waiting",
            "Look": "completed",
            "Break": "failed",
        }.items():
            said, labels = f"{word} {HOSTILE}", {"tenant": MARKUP}
            outcome = await clerk.run(said, session=word.lower(), store=store, labels=labels)
            assert outcome.status == status
        async with store.session("look") as session:
            step = PlanStep(id=HOSTILE, what=HOSTILE, status="done", evidence=HOSTILE)
            await session.set_plan(Plan(goal=HOSTILE, steps=(step,)))
            await session.set_summary(HOSTILE)
            await session.set(HOSTILE, {HOSTILE: HOSTILE})
            media = Media(media_type=f"image/{HOSTILE}", name=HOSTILE, data=b"x" * 200_000)
            await session.add(Message(role="user", blocks=(Text(HOSTILE), media)))
            await session.checkpoint(HOSTILE)
            await session.add({"role": "user", "content": HOSTILE}, format="openai")
            async with session.run(agent=HOSTILE, model=HOSTILE) as run:
                run.fail(HOSTILE, HOSTILE)
            await session.close("failed", HOSTILE)
        async with store.session("torn") as session:
            await session.add("Look")
            await session.run(agent=HOSTILE, model=HOSTILE).__aenter__()
        await store.cancel("charge", by=HOSTILE, reason=HOSTILE)
        await store.submit("charge", HOSTILE)
        await store.put_blob(b"orphan", media_type="text/plain", name=HOSTILE)


@pytest.fixture
def shop(written: Path, tmp_path: Path) -> Path:
    """A store of one's own."""
    return Path(shutil.copytree(written, tmp_path / "shop"))


def test_every_command_is_tried() -> None:
    """A new one has its place above. Another name of one is the same command."""
    aliases = {alias for several in ALIASES.values() for alias in several}
    assert set(LINES) | aliases == {name for name in make_app() if not name.startswith("-")}


@pytest.mark.parametrize("columns", [None, 50])
@pytest.mark.parametrize("command", [one for one in LINES if LINES[one]])
def test_no_command_prints_what_a_terminal_acts_on(
    command: str,
    columns: int | None,
    shop: Path,
    call_here: Callable[[Path, str], Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does any take data for markup, or let it look like a line of its own."""
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    for rest, code in LINES[command]:
        done = call_here(shop, f"{command} {rest}")
        assert done.code == code, (rest, done)
        for text in (done.out, done.err):
            assert UNSAFE.findall(text) == [], rest
        if command not in ANSWERS:
            assert not re.search("^holdfast: all is well", done.out + done.err, re.MULTILINE), rest


@pytest.mark.parametrize("command", [one for one in LINES if LINES[one]])
def test_json_says_exactly_what_is_stored(
    command: str, shop: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """In characters that a terminal shows as they are."""
    for rest, code in LINES[command]:
        done = call_here(shop, f"{command} {rest} --json")
        assert done.code == code, (rest, done)
        assert UNSAFE.findall(done.out) == [], rest
        if not done.out:
            assert code not in (0, 5, 6)
            continue
        many = command in ("tail", "worker", "notify")
        found = [json.loads(one) for one in (done.out.splitlines() if many else [done.out])]
        if command in ("sessions", "show", "tail", "diff", "stats", "blobs", "run", "pending") and not rest:
            assert any(HOSTILE in one for one in _strings(found)), rest


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


@pytest.mark.parametrize("form", ["text", "markdown", "jsonl", "experiment"])
def test_an_export_into_a_file_is_exact(
    form: str, shop: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """What goes to the screen is made visible; what goes into a file is not touched."""
    done = call_here(shop, f"export look --form {form} --output out")
    assert done.code == 0
    with open(shop / "out", encoding="utf-8", newline="") as file:
        written = file.read()
    if form in ("text", "markdown"):
        assert HOSTILE in written
    else:
        assert HOSTILE in list(_strings([json.loads(line) for line in written.split("\n") if line]))


@pytest.mark.parametrize("line", ["show look", "pending", "export look"])
def test_on_a_terminal_there_are_no_escapes_but_our_colours(line: str, written: Path) -> None:
    """Everything between them is text."""
    with Terminal(written, line.split(), columns=80) as terminal:
        assert terminal.finish() == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen).replace("\r\n", "\n")
    assert UNSAFE.findall(plain) == []
    assert "\\x1b]52;c;" in re.sub(r"\s", "", plain) or "\\u001b]52;c;" in re.sub(r"\s", "", plain)


def test_a_reply_that_grows_on_a_terminal_is_text(shop: Path) -> None:
    """And so is what happens on the way."""
    with Terminal(shop, ["run", "hostile.py", "Look", "--session", "grows"], columns=80) as terminal:
        assert terminal.finish() == 0
    for bad in ("\x1b]52", "\x1b[2J", "\x9b", "\u202e", "\x07"):
        assert bad not in terminal.screen


def test_a_shell_that_completes_is_given_text(written: Path) -> None:
    """Titles are shown beside the ids."""
    found = dict(list_ids(f"sqlite:{written}/holdfast.db", ""))
    assert {"look", "refuse"} <= set(found)
    assert UNSAFE.findall("".join(found.values())) == []
    assert "\n" not in "".join(found.values())


def test_visible_text_says_which_characters_there_were() -> None:
    """And leaves alone what is text in any language."""
    assert visible("naïve 日本語 👩‍👩‍👧 עברית [/bold]") == "naïve 日本語 👩‍👩‍👧 עברית [/bold]"
    assert visible("a\x1b[2J\x9b\u202e\ud800\n\t\r") == "a\\x1b[2J\\x9b\\u202e\\ud800\\n\\t\\r"
    assert visible("a\r\nb\tc\rd", lines=True) == "a\nb\tc\\rd"
    assert UNSAFE.findall(visible(ESCAPES)) == []


def test_one_place_prints() -> None:
    """Commands have no other way to a terminal than the console that makes text visible."""
    package = Path(holdfast.__file__).parent
    others = {
        str(path.relative_to(package)): found
        for path in (package / "cli").rglob("*.py")
        if path.name != "console.py"
        and (
            found := re.findall(
                r"(?<![.\w])print\((?!\"stopped\")|stdout\.write|stderr\.write|rich\.text|Console\(|from_markup",
                path.read_text(),
            )
        )
    }
    # The script for a shell is no text for people.
    assert others == {"cli/commands/completion.py": ["print("]}

"""A new user adopts holdfast in the program of a framework's quickstart, and pulls the plug.

Each folder here has a program before and after it was adopted by the lines of the docs; it is otherwise the
same. The process is killed right after it has paid, and the same program is run again. Then the user looks.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.cli import main
from tests.crash.fork_server import Warm
from tests.docs.blocks import ROOT, find_blocks

from .bank import BOOK, POWER_CUT
from .programs import HERE, run

ADOPTED = {
    "pydantic_ai_agent": (13, 0),
    "langgraph_graph": (11, 2),
    "langchain_agent": (11, 2),
    "openai_agents_agent": (12, 2),
}
"""For each framework, how many lines are new, and how many are gone."""
KEEPS_HISTORY = {"openai_agents_session": (3, 2)}
"""Likewise, where the session is holdfast's and the run is not: its tools are not in a ledger."""
ALL = ["own_agent", *ADOPTED]
THREADS = {"langgraph_graph": "order-42", "langchain_agent": "order-42"}
"""Where the transcript is that of a thread, and the calls of its tools are in a ledger."""
PAGES = {
    "pydantic_ai_agent": ("pydantic-ai", "declare-tools"),
    "langgraph_graph": ("langgraph", "declare-tools"),
    "langchain_agent": ("langgraph", "declare-tools"),
    "openai_agents_agent": ("openai-agents", "declare-tools"),
    "openai_agents_session": ("openai-agents",),
}
"""Where a new user of each framework reads, beside the front page."""
OURS = {
    "Durable", "DurableRunner", "HoldfastMiddleware", "HoldfastSaver", "HoldfastSession", "Landed",
    "NotLanded", "SqliteSaver", "durable_tools", "mutate",
}  # fmt: skip
STORY = [
    "Refund order 42.",
    'look_up(order="42")',
    "order 42 was 500 cents",
    'refund(order="42", cents=500)',
    "refunded 500 cents for 42",
    "Order 42 is refunded.",
]
CALLS = [
    'look_up(order="42") completed order 42 was 500 cents',
    'refund(order="42", cents=500) in doubt, then landed settled by verify: refunded 500 cents for 42',
]
"""What the ledger of a thread tells."""
Look = Callable[..., str]


class Killed(NamedTuple):
    """A program that was killed in its payment, and run again."""

    directory: Path
    pids: tuple[int, int]
    printed: str

    @property
    def payments(self) -> list[str]:
        """What the bank has paid."""
        return (self.directory / BOOK).read_text().splitlines()


def play(warm: Warm, program: str, directory: Path) -> Killed:
    """Run it until the power cut, and again."""
    (directory / POWER_CUT).touch()
    with warm.child(run, program, str(directory)) as first:
        assert first.outcome() is None, "it was not killed"
    with warm.child(run, program, str(directory)) as second:
        printed = second.result()
    return Killed(directory, (first.pid, second.pid), printed)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Look:
    """Run a command of `holdfast`, in the directory of a program."""

    def run_command(killed: Killed, *words: str) -> str:
        monkeypatch.chdir(killed.directory)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("HOLDFAST_STORE", "sqlite:agents.db")
        assert main(words) == 0
        return capsys.readouterr().out

    return run_command


def list_sessions(look: Look, killed: Killed) -> list[str]:
    """The ids of all sessions in the store of a program."""
    return sorted(one["session"] for one in json.loads(look(killed, "sessions", "--json"))["sessions"])


def is_told(story: list[str], text: str) -> bool:
    """Whether a text has these parts, in this order."""
    place = 0
    for part in story:
        place = text.find(part, place) + 1
        if not place:
            return False
    return True


@pytest.mark.parametrize("framework", [*ADOPTED, *KEEPS_HISTORY])
def test_adopting_takes_a_few_lines(framework: str) -> None:
    """The import of the adapter, a word for each tool with the hook that asks the bank, and a line that hands
    it over."""
    before, after = ((HERE / framework / f"{when}.py").read_text() for when in ("before", "after"))
    changes = [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    print(framework, *changes, sep="\n")
    counted = [sum(line.startswith(sign) for line in changes) for sign in "+-"]
    assert counted == [*{**ADOPTED, **KEEPS_HISTORY}[framework]]


@pytest.mark.parametrize("framework", [*ADOPTED, *KEEPS_HISTORY])
def test_what_is_added_is_what_the_pages_show(framework: str) -> None:
    """Each name of ours is imported as on a page, and called with as many arguments and these options."""
    pages = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in PAGES[framework])]
    shown = [list_uses(block.source) for page in pages for block in find_blocks(page, "python")]
    used = list_uses((HERE / framework / "after.py").read_text())
    assert used
    assert used - set().union(*shown) == set()


def list_uses(source: str) -> set[tuple[str, ...]]:
    """Where names of holdfast come from, and how they are called."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree = compile(source, "page", "exec", flags=flags, dont_inherit=True)
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            found |= {(str(node.module), one.name) for one in node.names}
        called = ast.unparse(node.func).rpartition("holdfast.")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called.partition(".")[0] in OURS:
            found.add((called, f"{len(node.args)} arguments"))
            found |= {(called, f"{one.arg}=") for one in node.keywords}
    return found


@pytest.mark.parametrize("framework", [*ADOPTED, *KEEPS_HISTORY])
def test_a_quickstart_as_it_comes_pays_twice(loaded_warm: Warm, quick_path: Path, framework: str) -> None:
    """What the few lines are for."""
    killed = play(loaded_warm, f"{framework}/before.py", quick_path)
    assert killed.printed == "Order 42 is refunded.\n"
    assert killed.payments == ["500 cents for 42"] * 2


@pytest.mark.parametrize("framework", ALL)
def test_the_printed_story_is_what_happened(
    loaded_warm: Warm, quick_path: Path, framework: str, look: Look
) -> None:
    """Paid once, and `show` and `export` say which process died in which call, what became of it, and what
    was said; nothing twice."""
    killed = play(loaded_warm, f"{framework}/after.py", quick_path)
    assert killed.printed == "Order 42 is refunded.\n"
    assert killed.payments == ["500 cents for 42"]
    sessions = list_sessions(look, killed)
    died, went_on = (f":{pid}" for pid in killed.pids)

    # Which process died, and that it died in the refund, which has happened.
    shown = "\n".join(look(killed, "show", one) for one in sessions)
    for part in (*STORY[1:5], "landed", died, went_on):
        assert part in shown, part
    looks = [json.loads(look(killed, "show", one, "--json")) for one in sessions]
    looks = [one for one in looks if "leases" in one]  # A thread has a ledger, which is listed, too.
    ends = [(lease["name"], lease["ended"]) for one in looks for lease in one["leases"]]
    assert [name.endswith(died) for name, ended in ends if ended == "lost"] == [True]
    assert {name.endswith(went_on) for name, ended in ends if not name.endswith(died)} == {True}
    assert [row["tool"] for one in looks for row in one["timeline"] if row["tool"]] == ["look_up", "refund"]

    # Each call has one intent and one outcome.
    exported = [look(killed, "export", one, "-F", "jsonl").splitlines() for one in sessions]
    entries = [json.loads(line) for lines in exported for line in lines]
    assert list_outcomes(entries) == [
        ("look_up", "tool.completed"),
        ("refund", "landed by verify"),
    ]

    # What was said: in the session, or in the messages of the thread.
    name = THREADS.get(framework) or sessions[0]
    told = look(killed, "show", name)
    assert is_told(STORY, told), told
    for form in ("text", "markdown"):
        told = look(killed, "export", name, "-F", form)
        said, _, calls = told.partition("\ntools\n" if form == "text" else "\n# Tools\n")
        assert is_told(["Refund order 42.", "look_up", "500 cents", "refund", *STORY[4:]], said), told
        assert [said.count(STORY[place]) for place in (2, 4, 5)] == [1, 1, 1]
        listed = [" ".join(line.split()).removeprefix("- ") for line in calls.splitlines() if line]
        assert listed == (CALLS if framework in THREADS else [])
    log = [json.loads(line) for line in look(killed, "export", name, "-F", "experiment").splitlines()]
    assert [(one["metadata"]["calls"], one["content"]) for one in log] == [
        (["look_up"], ""),
        (["refund"], ""),
        ([], STORY[-1]),
    ]


@pytest.mark.parametrize("framework", KEEPS_HISTORY)
def test_a_history_is_told_once_also_where_the_run_is_not_durable(
    loaded_warm: Warm, quick_path: Path, framework: str, look: Look
) -> None:
    """The question was stored before the kill, and is asked again: it stands once. The turn that was cut off
    left nothing, so its tool has run again, as the page of the framework says."""
    killed = play(loaded_warm, f"{framework}/after.py", quick_path)
    assert killed.printed == "Order 42 is refunded.\n"
    assert killed.payments == ["500 cents for 42"] * 2
    (session,) = list_sessions(look, killed)
    assert session == "order-42"
    story = [STORY[0], *STORY[3:]]
    shown = look(killed, "show", session)
    assert is_told(story, shown), shown
    for form in ("text", "markdown"):
        told = look(killed, "export", session, "-F", form)
        assert is_told([STORY[0], "refund", "500", *STORY[4:]], told), told
        assert [told.count(part) for part in STORY[4:]] == [1, 1]
    asked = f"user: {STORY[0]}"
    assert [told.count(asked) for told in (shown, look(killed, "export", session))] == [1, 1]


def list_outcomes(entries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Each outcome on record of each intent on record."""
    found = []
    for intent in entries:
        if intent["kind"] in ("tool.issued", "tool.ran"):
            outcomes = [one for one in entries if one["body"].get("issued") == intent["seq"]]
            found.append((intent["body"]["tool"], *map(describe_outcome, outcomes)))
    return found


def describe_outcome(entry: dict[str, Any]) -> str:
    """How a call ended."""
    body = entry["body"]
    return f"{body['verdict']} by {body['by']}" if entry["kind"] == "tool.settled" else entry["kind"]

"""Runs of `DurableRunner`, killed in the middle, as the command line shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_processes import Done, list_long
from tests.crash.fork_server import Warm

pytest.importorskip("agents", reason="needs the extra openai-agents")

Run = Callable[[str], Done]
SAID = [
    "Settle order 7.",
    'look(what="order")',
    'charge(what="order")',
    "charged order",
    'ask_scout(input="Where is it?")',
    "It is at the door.",
    "All is settled.",
]


@pytest.fixture(scope="module")
def killed(loaded_warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: `done` was killed in a tool of the agent, in a tool of the agent that is a tool, and has
    ended; `dead` and `keyed` were killed once, and have not."""
    from tests.openai_agents.killed_runs import play

    folder = tmp_path_factory.mktemp("runs")
    kills: list[tuple[str, dict[str, Any]]] = [
        ("done", {"kill": "clerk"}),
        ("done", {"kill": "scout"}),
        ("dead", {"kill": "clerk"}),
        ("keyed", {"kill": "scout", "run_key": "job-9"}),
    ]
    for name, options in kills:
        (folder / name).mkdir(exist_ok=True)
        with loaded_warm.child(play, str(folder / name), **options) as child:
            assert child.outcome() is None, "it was not killed"
    assert loaded_warm.call(play, str(folder / "done")) == "All is settled."
    assert len((folder / "done" / "deeds").read_text().splitlines()) == 2
    return folder


@pytest.fixture
def run(killed: Path, call_here: Callable[[Path, str], Done], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command on the store of one of them: `done: show order-7`."""
    monkeypatch.setenv("COLUMNS", "200")

    def run_command(line: str) -> Done:
        name, _, command = line.partition(": ")
        return call_here(killed, f"{command} --store sqlite:{name}/store.db")

    return run_command


def list_rows(shown: str) -> list[str]:
    """The lines of the timeline that have a sign, from the sign on."""
    found = [re.search(r" ([»«→×?·] .*)", line) for line in shown.splitlines()]
    return [" ".join(one[1].split()) for one in found if one is not None]


def find_scout(run: Run, name: str) -> str:
    """The session of the agent that is a tool."""
    listed = run(f"{name}: sessions --json").json["sessions"]
    (scout,) = [one["session"] for one in listed if one["parent"] is not None]
    return str(scout)


def test_each_call_is_shown_once_with_what_became_of_it(run: Run) -> None:
    """In doubt when the process died, settled by its hook; the agent in a tool, cut off and continued. A kill
    names the calls that had no outcome, and no others."""
    shown = run("done: show order-7").out
    assert shown.startswith("order-7  completed\n")
    rows = list_rows(shown)
    calls = [one for one in rows if one.startswith("→")]
    assert [one.partition("(")[0] for one in calls] == ["→ look", "→ charge", "→ ask_scout", "→ charge"]
    assert calls[0].startswith('→ look(what="order") completed {"cents":500}')
    charged = 'in doubt, then landed settled by verify: charged order noted: vendor="v-order"'
    assert calls[1] == f'→ charge(what="order") {charged}'
    assert calls[2].startswith(
        '→ ask_scout(input="Where is it?") cut off, then completed It is at the door. '
    )
    assert 'in doubt, then landed settled by verify: charged door noted: vendor="v-door"' in calls[3]
    assert "openai_agents.usage" not in shown
    kills = [one.partition("not finished: ")[2] for one in rows if one.startswith("×")]
    assert [one.rpartition(" ")[0].rpartition(" ")[0] for one in kills] == ["charge", "ask_scout, charge"]
    assert next(one for one in rows if one[0] in "»«") == "» user: Settle order 7."
    assert "next:" not in shown
    everything = run("done: show order-7 --all").out
    assert "charge(what=" in everything
    assert "call_id" not in shown + everything


def test_the_agent_in_a_tool_is_a_delegate_with_a_timeline_of_its_own(run: Run) -> None:
    scout = find_scout(run, "done")
    assert f"└── {scout}  completed" in run("done: show order-7").out
    rows = list_rows(run(f"done: show {scout}").out)
    assert [one[0] for one in rows] == ["»", "«", "×", "→", "«"]
    assert rows[0] == "» user: Where is it?"
    assert rows[3].startswith('→ charge(what="door") completed charged door')


def test_a_run_is_followed_in_words(run: Run) -> None:
    told = [" ".join(line.split()[3:]) for line in run("done: tail order-7 -n 0").out.splitlines()]
    assert 'reply of clerk: → look(what="order") → charge(what="order")' in told
    assert "tool: {'cents': 500} charged order" in told
    assert "call m7.1 settled by verify: landed" in told
    assert told.count("note: openai_agents.usage") == 1
    assert 'note: {"vendor":"v-order"}' in told
    assert told[-1] == "lease released"


def test_a_run_is_exported_in_every_form(run: Run) -> None:
    """What was said, each once and in order."""
    text = run("done: export order-7").out
    places = [text.index(part) for part in SAID]
    assert places == sorted(places)
    assert [text.count(part) for part in SAID[3:]] == [1, 1, 1, 1]
    markdown = run("done: export order-7 -F markdown").out
    assert '**charge** (`t0-b`)\n\n```json\n{\n  "what": "order"\n}\n```\n' in markdown
    assert "result of `t0-b`:\n\n```\ncharged order\n```\n" in markdown
    assert markdown.endswith("## Assistant\n\nAll is settled.\n")
    log = [json.loads(line) for line in run("done: export order-7 -F experiment").out.splitlines()]
    assert [(one["agent_id"], one["metadata"]["calls"], one["content"]) for one in log] == [
        ("clerk", ["look", "charge"], ""),
        ("clerk", ["ask_scout"], ""),
        ("clerk", [], "All is settled."),
    ]
    entries = [json.loads(line) for line in run("done: export order-7 -F jsonl").out.splitlines()]
    issued = [(one["body"]["tool"], one["seq"]) for one in entries if one["kind"] == "tool.issued"]
    ended = {one["body"].get("issued") for one in entries if one["kind"].startswith("tool.")}
    assert [tool for tool, seq in issued if seq in ended] == ["look", "charge", "charge", "ask_scout"]


def test_what_waits_can_be_answered_and_says_what_goes_on(run: Run) -> None:
    """By a session, by a key, and for the agent in a tool: the same call of the SDK."""
    session = "session=HoldfastSession('order-7', 'sqlite:dead/store.db')"
    by_session = f"the same DurableRunner.run(…) as before, with {session}"
    by_key = (
        "the same DurableRunner.run(…, run_key='job-9') as before, with HOLDFAST_STORE=sqlite:keyed/store.db"
    )
    for name, id, expected in (("dead", "order-7", by_session), ("keyed", "run.3a.job-9", by_key)):
        (waiting,) = run(f"{name}: pending {id} --json").json["pending"]
        assert (waiting["tool"], waiting["then"]) == ("charge", expected)
        assert waiting["notes"] in ({"vendor": "v-order"}, {"vendor": "v-door"})
        assert waiting["commands"]["landed"].startswith(f"holdfast resolve {id} {waiting['call']} landed")
        told = run(f"{name}: pending").out
        assert f"then: {expected}\n" in told
        shown = run(f"{name}: show {id}").out
        assert shown.startswith(f"{id}  interrupted\n")
        assert shown.splitlines()[-1] == f"next: {expected}"
    inner = run(f"keyed: show {find_scout(run, 'keyed')}").out.splitlines()[-1]
    around = "of the agent whose tool runs this one: run.3a.job-9"
    assert inner == f"next: the same DurableRunner.run(…) as before, {around}"


def test_the_list_names_the_framework_and_the_delegates(run: Run) -> None:
    listed = run("keyed: sessions --json").json["sessions"]
    assert {one["session"]: one["standing"] for one in listed} == {
        "run.3a.job-9": "interrupted",
        find_scout(run, "keyed"): "interrupted",
    }
    assert {one["labels"]["agent_framework"] for one in listed} == {"openai-agents"}
    assert "interrupted (1 in doubt)" in run("keyed: ls").out


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_narrow_terminal_will_do(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """No line is longer than the terminal, also where ids and keys are long."""
    scout = find_scout(run, "done")
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in ("sessions", "show order-7", "show order-7 --all", f"show {scout}", "stats"):
        assert list_long(run(f"done: {line}").out, columns) == [], line
    for line in ("sessions", "show run.3a.job-9", "pending", "stats"):
        assert list_long(run(f"keyed: {line}").out, columns) == [], line


def test_a_run_has_a_page(run: Run, tmp_path: Path) -> None:
    """With what was said, the kills, the calls and what became of them, and how it goes on."""

    def make_page(line: str) -> str:
        file = tmp_path / "page.html"
        file.unlink(missing_ok=True)
        assert run(f"{line} --html {file}").code == 0
        return unescape(file.read_text())

    page = make_page("done: show order-7")
    for said in ("was killed or cut off", "landed, says verify", 'vendor="v-order"', *SAID):
        assert said in page, said
    assert "openai_agents.usage" not in page
    assert "To go on" not in page
    page = make_page("dead: show order-7")
    box = page.partition('<section class="box needs">')[2].partition("</section>")[0]
    assert "with session=HoldfastSession('order-7', 'sqlite:dead/store.db')" in box
    assert '<code class="command">holdfast resolve order-7 m7.1 landed' in box

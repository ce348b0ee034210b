"""Sessions of pydantic-ai and threads of LangGraph, killed in the middle, as the command line shows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.advice import continue_call
from holdfast.cli.options import Common
from holdfast.core.fold import RunInfo
from holdfast.core.head import Head
from holdfast.ids import SessionId
from holdfast.system.clock import utc_now
from tests.browser import open_browser, visit
from tests.cli.cli_processes import Done, environment, list_long
from tests.crash.fork_server import Warm

pytest.importorskip("pydantic_ai", reason="needs the extra pydantic-ai")
pytest.importorskip("langgraph", reason="needs the extra langgraph")

Run = Callable[[str], Done]
AGENT, GRAPH = "sqlite:{}/agent/store.db", "sqlite:{}/graph/store"


@pytest.fixture(scope="module")
def killed(loaded_warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent and a graph, each killed twice from scratch: `agent` and `graph` were continued, `dead-agent`
    and `dead-graph` were not."""
    from tests.langgraph.killed_graphs import play
    from tests.pydantic_ai.killed_agent import work

    folder = tmp_path_factory.mktemp("killed")
    batch = "in a batch, one done and one under way"
    for name in ("agent", "dead-agent", "graph", "dead-graph"):
        (folder / name).mkdir()
    for name in ("agent", "dead-agent"):
        with loaded_warm.child(work, str(folder / name), at="after the effect") as child:
            assert child.outcome() is None, "it was not killed"
    for name in ("graph", "dead-graph"):
        with loaded_warm.child(play, str(folder / name), "sqlite", batch) as child:
            assert child.outcome() is None, "it was not killed"
    loaded_warm.call(work, str(folder / "agent"))
    loaded_warm.call(play, str(folder / "graph"), "sqlite")
    return folder


@pytest.fixture
def run(
    killed: Path, call_here: Callable[[Path, str], Done], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Done]:
    """A command in that folder, on a terminal that is wide enough for a row to be a line."""
    monkeypatch.setenv("COLUMNS", "160")
    return lambda line: call_here(killed, line)


def rows(shown: str) -> list[str]:
    """The lines of the timeline, without times and durations."""
    lines = [line.strip() for line in shown.splitlines()]
    signs = "»«→×?·"
    return [
        " ".join(line[min(place) :].split())
        for line in lines
        if (place := [line.index(sign) for sign in signs if f" {sign} " in line])
    ]


def without_end(row: str) -> str:
    """A row without its duration."""
    return row.rpartition(" ")[0].rpartition(" ")[0]


def test_a_killed_agent_of_pydantic_ai_has_each_call_once_with_what_became_of_it(run: Run) -> None:
    """In doubt when its process died, settled by its hook, made again: one row; and nothing of the format."""
    shown = run("show order-7 --store sqlite:agent/store.db").out
    found = rows(shown)
    called = [one.split("(")[0] for one in found if one.startswith("→")]
    # Calls of one reply begin in any order.
    assert called[0] == "→ look"
    assert sorted(called[1:4]) == ["→ charge", "→ slow", "→ store"]
    assert called[4:] == ["→ mail"]
    (charge,) = [one for one in found if "→ charge(" in one]
    assert charge.startswith(
        '→ charge(order="7", cents=500) in doubt, then landed settled by verify: charge 7:500'
    )
    assert "» user: Settle order 7" in found
    assert "parts" not in shown
    assert "lease taken" not in shown
    assert "checkpoint" not in shown
    assert "next:" not in shown
    (spent,) = re.findall(r"(?m)^spent +(.*?) *$", shown)
    assert re.fullmatch(r"[\d,]+ tokens, \d+ steps", spent), "money that is not known is left out"
    everything = run("show order-7 --all --store sqlite:agent/store.db").out
    assert "holds the session" in everything
    assert "checkpoint, version 1" in everything


def test_what_to_run_next_is_the_same_call_of_the_framework(run: Run) -> None:
    """With the URL and the session in it."""
    shown = run("show order-7 --store sqlite:dead-agent/store.db").out
    call = (
        "agent.run(…) as before, with capabilities=[Durable('sqlite:dead-agent/store.db', session='order-7')]"
    )
    assert shown.splitlines()[-1] == f"next: the same {call}"
    (lost,) = [one for one in rows(shown) if one.startswith("×")]
    assert "no process has taken over yet" in lost
    graph = run("show t --store sqlite:dead-graph/store").out
    config = "{'configurable': {'thread_id': 't'}}"
    expected = f"next: graph.invoke(None, {config}), with HoldfastSaver.from_url('sqlite:dead-graph/store')"
    assert graph.splitlines()[-1].startswith(expected)


def test_a_thread_of_langgraph_is_found_by_its_id_and_shown_as_steps_with_nodes(run: Run) -> None:
    """New messages, values and the effects of its tools, each call once, where it was killed."""
    shown = run("show t --store sqlite:graph/store").out
    assert shown.startswith("thread t  completed\n")
    found = [without_end(one) if one[0] in "→×" else one for one in rows(shown)]
    took = [one for one in found if one.startswith("→")]
    assert sorted(one.split("(")[0] for one in took) == ["→ look", "→ pay", "→ post", "→ refund"]
    assert [one for one in found if one[0] not in "→×"] == [
        "» user: go",
        "« calls pay, look, post",
        '· notes: ["checked"]',
        "« calls refund",
        '· notes: ["checked"]',
        "« all done",
    ]
    (post,) = [one for one in rows(shown) if one.startswith("→ post")]
    assert 'post(order="a") in doubt, then landed settled by verify: posted a' in post
    (refund,) = [one for one in took if one.startswith("→ refund")]
    assert "approved by an interrupt's answer, then completed refunded a" in refund
    nodes = re.findall(r"(?m)^ +\d+ +[0-9.]+ s +(\w+) +[«→·] ", shown)
    assert nodes == ["model", "check", "tools", "model", "check", "tools", "model"]
    by_session = run("show t.7c. --store sqlite:graph/store").out
    assert by_session == shown


def test_a_thread_as_json_has_its_checkpoints_and_the_ledger_of_its_tools(run: Run) -> None:
    """For programs."""
    shape = run("show t --json --store sqlite:dead-graph/store").json
    assert (shape["thread"], shape["standing"]) == ("t", "interrupted")
    (namespace,) = shape["namespaces"]
    assert [one["step"] for one in namespace["checkpoints"]] == [-1, 0, 1, 2]
    last = namespace["checkpoints"][-1]
    assert (last["nodes"], last["values"], last["next"]) == (["check"], {"notes": ["checked"]}, ["tools"])
    tools = {one["tool"]: one["status"] for one in shape["tools"]["timeline"] if one["tool"]}
    assert tools["post"] == "in_doubt"


def test_a_thread_is_found_wherever_its_sessions_are_looked_at(run: Run) -> None:
    """By its id: what waits in it, what it took. What takes one session only names those of the thread."""
    store = "--store sqlite:dead-graph/store"
    listed = json.loads(run(f"sessions --label adapter=langgraph.tools --json {store}").out)
    (ledger,) = [one["session"] for one in listed["sessions"]]
    waiting = json.loads(run(f"pending t --json {store}").out)["pending"]
    assert {one["session"] for one in waiting} == {ledger}
    assert waiting == json.loads(run(f"pending {ledger} --json {store}").out)["pending"]
    counted = json.loads(run(f"stats t --json {store}").out)
    assert counted["tools"] == json.loads(run(f"stats {ledger} --json {store}").out)["tools"]
    refused = run(f"rewind t --steps 1 {store}")
    assert refused.code == 3
    assert f"it is a thread of LangGraph, whose sessions are t.7c., {ledger}" in refused.err


def test_a_thread_is_followed_and_exported(run: Run) -> None:
    """Entries of LangGraph's own kind say what they hold."""
    tail = run("tail t -n 0 --store sqlite:graph/store").out
    assert 'model: assistant: → pay(order="a") → look(order="a") → post(order="a")' in tail
    assert 'checkpoint after check: notes: ["checked"]; next is tools' in tail
    last = run("tail t -n 1 --store sqlite:graph/store").out.splitlines()
    assert [line.partition("  ")[2].split(None, 2)[2] for line in last] == [
        "checkpoint after model: assistant: all done"
    ]
    text = run("export t --store sqlite:graph/store").out
    assert 'assistant → pay(order="a")\n' in text
    assert "result: posted a\n" in text
    said, _, calls = text.partition("\ntools\n\n")
    assert said.endswith("assistant: all done\n")
    assert sorted(one.partition("(")[0] for one in calls.splitlines()) == ["look", "pay", "post", "refund"]
    assert 'post(order="a")  in doubt, then landed  settled by verify: posted a\n' in calls
    markdown = run("export t --form markdown --store sqlite:graph/store").out
    assert "## Assistant\n\nall done\n\n# Tools\n\n- " in markdown
    assert '\n- post(order="a")  in doubt, then landed  settled by verify: posted a\n' in markdown
    log = [
        json.loads(line) for line in run("export t -F experiment --store sqlite:graph/store").out.splitlines()
    ]
    assert [(one["iter"], one["metadata"]["calls"], one["content"]) for one in log] == [
        (1, ["pay", "look", "post"], ""),
        (4, ["refund"], ""),
        (7, [], "all done"),
    ]
    assert run("export t --version 1 --store sqlite:graph/store").code == 2


def test_a_thread_is_exported_with_what_its_subgraphs_said(
    tmp_path: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """Each message once, whether the graph has it, too, or not; a subgraph also alone."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import END, START, StateGraph

    from holdfast.adapters.langgraph import HoldfastSaver
    from tests.langgraph.graphs import Talk, thread

    def think(state: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage("a thought", id="m1")]}

    def conclude(state: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage("a conclusion", id="m2")]}

    inner: Any = StateGraph(Talk)
    inner.add_sequence([think, conclude])
    inner.add_edge(START, "think")
    subgraph = inner.compile()

    def helper(state: Talk) -> dict[str, Any]:
        return {"messages": subgraph.invoke(state)["messages"][-1:]}

    outer: Any = StateGraph(Talk)
    outer.add_node("helper", helper)
    outer.add_edge(START, "helper")
    outer.add_edge("helper", END)
    with HoldfastSaver.from_url(f"sqlite:{tmp_path}/store.db") as saver:
        outer.compile(checkpointer=saver).invoke({"messages": [HumanMessage("go", id="m0")]}, thread())

    def export(name: str, form: str) -> str:
        done = call_here(tmp_path, f"export {name} -F {form} --store sqlite:store.db")
        assert done.code == 0, done.err
        return done.out

    text = export("t", "text")
    assert text.partition("\n\n")[2] == (
        "user: go\n\nassistant: a conclusion\n\nsubgraph helper\n\nassistant: a thought\n"
    )
    markdown = export("t", "markdown")
    assert markdown.endswith("# Subgraph helper\n\n## Assistant\n\na thought\n")
    log = [json.loads(line) for line in export("t", "experiment").splitlines()]
    assert sorted(one["content"] for one in log) == ["a conclusion", "a thought"]
    assert [one["t"] for one in log] == sorted(one["t"] for one in log)
    listed = call_here(tmp_path, "sessions --json --store sqlite:store.db").json["sessions"]
    (below,) = [one["session"] for one in listed if "langgraph.namespace" in one["labels"]]
    alone = export(below, "text").partition("\n\n")[2]
    assert alone == "user: go\n\nassistant: a thought\n\nassistant: a conclusion\n"


def test_agents_are_followed_and_exported_in_words(run: Run) -> None:
    """Replies and results of pydantic-ai are text and calls."""
    tail = run("tail order-7 -n 0 --store sqlite:agent/store.db").out
    assert 'reply: → look(order="7")\n' in tail
    assert 'tool: {"cents":500}\n' in tail
    text = run("export order-7 --store sqlite:agent/store.db").out
    assert 'assistant → charge(order="7", cents=500)\n' in text
    assert "result: charge 7:500\n" in text


def _write_page(run: Run, folder: Path, line: str) -> Path:
    """The page that `show --html` makes."""
    file = folder / "page.html"
    assert run(f"show {line} --html {file}").code == 0
    return file


def test_a_thread_has_a_page_with_its_steps_and_the_calls_of_its_tools(run: Run, tmp_path: Path) -> None:
    """Nodes and calls are bars, the kill is a gap, and the effects are those of its tools."""
    page = _write_page(run, tmp_path, "t --store sqlite:graph/store").read_text()
    shown = json.loads(run("show t --store sqlite:graph/store --json").out)
    assert "<h1>t <span" in page
    for said in ("was killed or cut off", "Not finished:", "landed, says verify", "approved by an interrupt"):
        assert said in page
    transcript = page.partition("<h2>Transcript</h2>")[2].partition("<h2>Effects</h2>")[0]
    assert re.findall(r'<div class="said">([^<]*)</div>', transcript) == ["go", "all done"]
    times = re.findall(r"<time>([^<]*)</time>", transcript)
    asked, answered = (shown["namespaces"][0]["checkpoints"][place]["at"][:19] for place in (1, -1))
    assert (times[0], times[-1]) == (asked.replace("T", " "), answered.replace("T", " "))
    effects = page.partition("<h2>Effects</h2>")[2].partition("<h2>Checkpoints</h2>")[0]
    called = re.findall(r'<span class="mono">(\w+)\(', effects)
    assert sorted(called) == ["pay", "post", "refund"]
    for one in shown["namespaces"][0]["checkpoints"]:
        assert f"<code>{one['checkpoint']}</code>" in page
    assert "To go on" not in page


def test_a_page_of_a_thread_says_how_it_goes_on(run: Run, tmp_path: Path) -> None:
    """The call in doubt with the commands that answer it, and the graph's own call."""
    page = unescape(_write_page(run, tmp_path, "t --store sqlite:dead-graph/store").read_text())
    assert "no process has taken over yet" in page
    box = page.partition('<section class="box needs">')[2].partition("</section>")[0]
    config = "{'configurable': {'thread_id': 't'}}"
    assert f"graph.invoke(None, {config}), with HoldfastSaver.from_url('sqlite:dead-graph/store')" in box
    commands = re.findall(r'<code class="command">holdfast ([^<]*)</code>', box)
    assert commands
    assert all(one.endswith("--store sqlite:dead-graph/store") for one in commands)


@pytest.mark.parametrize("width", [480, 960])
def test_no_node_is_drawn_while_no_process_was_alive(run: Run, tmp_path: Path, width: int) -> None:
    """In a browser: a node that was cut off has a bar before the gap and one after it; the window is not
    scrolled sideways, however small it is."""
    file = _write_page(run, tmp_path, "t --store sqlite:graph/store")
    with open_browser() as browser, visit(browser, file, width=width) as visited:
        page = visited.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = "const box = one.getBoundingClientRect(); return [box.left, box.right]"
        boxes = f"(found) => found.map((one) => {{ {box} }})"
        gaps = page.locator(".hf-steps rect.hf-gap").evaluate_all(boxes)
        nodes = page.locator(".hf-steps .hf-bar.hf-node").evaluate_all(boxes)
        assert len(gaps) == 1
        assert len(nodes) > 2
        for left, right in gaps:
            inside = [one for one in nodes if min(one[1], right) - max(one[0], left) > 2]
            assert inside == []
            assert any(one[1] <= left + 2 for one in nodes)
            assert any(one[0] >= right - 2 for one in nodes)
        assert visited.console == []
        assert visited.requests == [file.as_uri()]


def test_the_list_says_which_session_is_of_which_thread(run: Run) -> None:
    """Their ids are escaped; the thread id is the one that people know. In place of an agent stands the
    framework."""
    listed = run("sessions --store sqlite:graph/store").out
    assert re.findall(r" (LangGraph(?: tools)?)  ", listed).count("LangGraph tools") == 1
    assert "thread t\n" in "\n".join(line.rstrip() for line in listed.splitlines()) + "\n"
    assert "tools of thread t" in listed


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_narrow_terminal_will_do(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """No line is longer than the terminal; and a thread is named, also where there is no room for titles."""
    monkeypatch.setenv("COLUMNS", str(columns))
    looks = {
        "graph/store": ("sessions", "show t", "show t --all", "stats"),
        "dead-graph/store": ("sessions", "show t", "pending", "stats"),
        "agent/store.db": ("sessions", "show order-7", "show order-7 --all", "stats"),
        "dead-agent/store.db": ("show order-7", "pending"),
    }
    for store, lines in looks.items():
        for line in lines:
            assert list_long(run(f"{line} --store sqlite:{store}").out, columns) == [], line
    listed = run("sessions --store sqlite:graph/store").out
    assert "thread t" in listed
    assert "tools of thread t" in listed


def test_frameworks_need_not_be_installed_to_look(killed: Path) -> None:
    """Nothing of them is imported."""
    code = (
        "import sys\n"
        "for name in ('langgraph', 'langchain_core', 'ormsgpack', 'pydantic_ai', 'openai', 'anthropic'):\n"
        "    sys.modules[name] = None\n"
        "from holdfast.cli import main\n"
        "for line in sys.argv[1:]:\n"
        "    assert main(line.split()) == 0, line\n"
    )
    lines = [
        "show t --store sqlite:graph/store",
        "tail t --store sqlite:graph/store",
        "export t --store sqlite:graph/store",
        "show order-7 --store sqlite:agent/store.db",
        "export order-7 --store sqlite:agent/store.db",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *lines], cwd=killed, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "calls pay, look, post" in done.stdout


def _head(**more: Any) -> Head:
    now = utc_now()
    return Head(
        session=SessionId("order 7"),
        uid="u",
        seq=1,
        sum="s",
        status="active",
        created_at=now,
        updated_at=now,
        **more,
    )


def test_advice_fits_what_drives_the_session_and_hides_passwords() -> None:
    """An agent of ours, pydantic-ai, a graph, a delegate, an MCP proxy, a loop of one's own."""
    common = Common(store="postgresql://ann:secret@db.example/agents?sslpassword=hidden")
    started = utc_now()
    ours = RunInfo(run="r", session=SessionId("s"), started_at=started, agent="clerk", loop="agent")
    own = RunInfo(run="r", session=SessionId("s"), started_at=started, agent="clerk", model="pretend-1")
    url = "postgresql://ann@db.example/agents"
    calls = {
        "agent": continue_call(_head(), [ours], common),
        "loop": continue_call(_head(), [own], common),
        "pydantic-ai": continue_call(_head(labels={"agent_framework": "pydantic-ai"}), [own], common),
        "delegate": continue_call(_head(parent=SessionId("p")), [ours], common),
        "proxy": continue_call(_head(labels={"adapter": "mcp-proxy", "mcp.server": "git"}), [], common),
        "langgraph": continue_call(
            _head(labels={"adapter": "langgraph.tools", "langgraph.thread": "t"}), [], common
        ),
    }
    assert calls == {
        "agent": f"holdfast resume FILE.py 'order 7' --store {url}, where FILE.py has the agent 'clerk'",
        "loop": f"your program again: it goes on in session 'order 7' of {url}",
        "pydantic-ai": "the same agent.run(…) as before, with capabilities="
        f"[Durable('{url}', session='order 7')]",
        "delegate": "what continues p, which delegated to it",
        "proxy": f"the same call again, by a client of holdfast mcp proxy --name git with the store {url}",
        "langgraph": "graph.invoke(None, {'configurable': {'thread_id': 't'}}), with "
        f"HoldfastSaver.from_url('{url}') as its checkpointer",
    }

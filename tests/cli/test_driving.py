"""`run` and `resume` drive agents in processes that are killed, stopped and started again."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.cli_processes import call, end, start
from tests.crash.fork_server import poll


def test_an_answer_goes_to_stdout_and_the_rest_to_stderr(shop: Path) -> None:
    """What a pipe gets is the answer alone."""
    done = call(shop, "run clerk.py 'Look at it' --session s")
    assert (done.code, done.out) == (0, "It is there.\n")
    assert "look_up" in done.err
    assert "s: completed" in done.err
    quiet = call(shop, "run clerk.py 'Look at it' --session s --quiet")
    assert quiet.out == "It is there.\n"
    assert "look_up" not in quiet.err


@pytest.mark.parametrize("target", ["clerk.py", "./clerk.py:clerk", "clerk:clerk", "clerk:make_clerk"])
def test_an_agent_is_found_by_module_or_file(target: str, shop: Path) -> None:
    """As an attribute, as the only one of a file, or made by a function."""
    assert call(shop, f"run {target} Hello --json").json["output"] == "You said Hello."


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("clerk.py:clrk", 3, "did you mean clerk?"),
        ("missing.py", 3, "there is no file missing.py"),
        ("missing:agent", 3, "no module 'missing'"),
        ("clerk:decide", 1, ""),
        ("clerk:SCRIPTS", 2, "is not a holdfast.Agent"),
        ("broken.py", 1, "broken.py, line 2"),
        ("torn.py", 1, "torn.py, line 2)\n"),
        ("waits.py:main", 2, "waits.py:main is an async function"),
        ("clerk.py --deps waits.py:main", 2, "waits.py:main is an async function"),
        ("two.py", 2, "choose one: two.py:a, two.py:b"),
        ("none.py", 3, "has no holdfast.Agent"),
    ],
)
def test_what_is_no_agent_is_an_error_that_says_what_to_do(
    target: str, code: int, says: str, shop: Path
) -> None:
    """And no store is made for it."""
    (shop / "broken.py").write_text("import sys\nsys.nonsense()\n")
    (shop / "two.py").write_text(
        "import holdfast\na = holdfast.Agent('x:y', name='a')\nb = holdfast.Agent('x:y', name='b')\n"
    )
    (shop / "none.py").write_text("")
    (shop / "torn.py").write_text("import sys\nprint(\n")
    (shop / "waits.py").write_text("async def main() -> None:\n    pass\n")
    done = call(shop, f"run {target} Hello --store sqlite:new.db")
    assert done.code == code
    assert says in done.err
    # An exception out of a user's own code shows where it was.
    assert done.err.count("\n") == 1 or target == "clerk:decide"
    assert not (shop / "new.db").exists()


def test_a_killed_run_is_resumed_by_another_process(shop: Path) -> None:
    """It ends as if nothing had happened, once; resuming again gives the same answer."""
    first = call(shop, "resume clerk.py torn --json").json
    again = call(shop, "resume clerk.py torn --json").json
    assert first["output"] == again["output"] == "It is there."
    assert first["usd"] == again["usd"]
    assert call(shop, "sessions --interrupted --json").json["total"] == 1


def test_all_that_was_interrupted_is_resumed_at_once(shop: Path) -> None:
    """The code is that of the worst: here, one waits for a person."""
    done = call(shop, "resume clerk.py --all --json")
    assert done.code == 5
    assert {one["session"]: one["status"] for one in done.json["outcomes"]} == {
        "doubtful": "waiting",
        "torn": "completed",
    }
    (waiting,) = done.json["outcomes"][0]["waiting"]
    assert (waiting["kind"], waiting["call"]) == ("in_doubt", "c-charge")
    assert call(shop, "resume clerk.py --all").err == "no session was interrupted\n"


def test_a_run_that_waits_says_how_to_go_on(shop: Path) -> None:
    """Two commands, ready to be copied."""
    done = call(shop, "run clerk.py 'Ask them' --session s --store dir:shelf")
    assert (done.code, done.out) == (5, "")
    assert "holdfast pending --store dir:shelf" in done.err
    assert "holdfast resume clerk.py s --store dir:shelf" in done.err


def test_a_run_that_fails_says_why(shop: Path) -> None:
    """With a code of its own."""
    (shop / "poor.py").write_text(
        "import holdfast\n"
        "from clerk import clerk, decide\n"
        "poor = holdfast.Agent(holdfast.agents.ScriptedModel(decide), name='poor', "
        "budget=holdfast.Budget(steps=1), tools=clerk.registry.tools.values())\n"
        "del clerk\n"
    )
    done = call(shop, "run poor.py 'Look at it' --session s")
    assert done.code == 6
    assert "failed (budget_spent)" in done.err


def test_a_session_that_somebody_holds_is_left_alone(shop: Path) -> None:
    """Who wants it is told who has it; who waits for it gets it."""
    process = start(shop, "run", "clerk.py", "Wait for it", "--session", "busy")
    assert process.stderr is not None
    assert "wait_for" in process.stderr.readline()
    refused = call(shop, "resume clerk.py busy")
    assert refused.code == 4
    assert "'busy' is held by" in refused.err
    assert "--wait" in refused.err
    assert call(shop, "clean busy --yes").code == 4
    (busy,) = [one for one in call(shop, "sessions --json").json["sessions"] if one["session"] == "busy"]
    assert (busy["standing"], busy["holder"] is not None) == ("running", True)
    waiting = start(shop, "resume", "clerk.py", "busy", "--wait", "60", "--quiet")
    (shop / "go").touch()
    assert end(process).out == "It came.\n"
    assert end(waiting).out == "It came.\n"


def test_ctrl_c_ends_a_run_in_an_orderly_way(shop: Path) -> None:
    """One line, the usual code, nothing held; it can be resumed."""
    process = start(shop, "run", "clerk.py", "Wait for it", "--session", "busy")
    assert process.stderr is not None
    assert "wait_for" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.code, done.out) == (130, "")
    assert done.err == "stopped; to continue: holdfast resume clerk.py busy\n"
    shown = call(shop, "show busy --json").json
    assert shown["session"]["standing"] == "cancelled"
    assert shown["leases"][-1]["ended"] == "released"
    (shop / "go").touch()
    assert call(shop, "resume clerk.py busy").out == "It came.\n"


def test_ctrl_c_does_not_wait_for_a_tool_that_hangs_in_its_thread(shop: Path) -> None:
    """Nor does Python's own end; what the tool may have done is in doubt."""
    (shop / "stuck.py").write_text(
        "import threading\n"
        "from pathlib import Path\n"
        "import holdfast\n"
        "@holdfast.tool(side_effects={'mutate'})\n"
        "def hang() -> None:\n"
        "    'Never ends.'\n"
        "    Path('hangs').touch()\n"
        "    threading.Event().wait()\n"
        "script = [holdfast.messages.ToolCall(id='c', name='hang', args={})]\n"
        "stuck = holdfast.Agent(holdfast.agents.ScriptedModel(script), tools=[hang])\n"
    )
    process = start(shop, "run", "stuck.py:stuck", "Hang", "--session", "s")
    poll((shop / "hangs").exists, "the tool")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # The grace is for ending in an orderly way; the second one ends it.
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert done.code == 130
    assert "stopped" in done.err
    (waiting,) = call(shop, "pending s --json").json["pending"]
    assert (waiting["tool"], waiting["kind"]) == ("hang", "in_doubt")


def test_tools_get_what_deps_names(shop: Path) -> None:
    """A value, or what a function gives."""
    (shop / "counting.py").write_text(
        "import holdfast\n"
        "from holdfast import ToolContext; from holdfast.messages import ToolCall\n"
        "@holdfast.tool(side_effects=())\n"
        "def count(ctx: ToolContext) -> int:\n"
        "    'Count.'\n"
        "    return len(ctx.deps)\n"
        "model = holdfast.agents.ScriptedModel([ToolCall(id='c', name='count', args={}), 'ok'])\n"
        "agent = holdfast.Agent(model, tools=[count])\n"
        "def make(): return [1, 2, 3]\n"
    )
    done = call(shop, "run counting.py Hello --deps counting.py:make")
    assert "completed: 3" in done.err


def test_a_file_may_be_called_like_one_of_our_own_modules(shop: Path) -> None:
    """Its name does not matter: holdfast imports nothing of its own from it."""
    (shop / "agents").mkdir()
    (shop / "agents" / "rich.py").write_text((shop / "clerk.py").read_text())
    assert call(shop, "run agents/rich.py:clerk 'Look at it'").out == "It is there.\n"


def test_a_typed_output_is_json(shop: Path) -> None:
    """On stdout, for the next program."""
    (shop / "typed.py").write_text(
        "import holdfast\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Weather:\n"
        "    city: str\n"
        "    degrees: int\n"
        "def script(prompt):\n"
        "    return holdfast.messages.ToolCall(id='o', name=prompt.tools[0].name,"
        " args={'city': 'Lyon', 'degrees': 9})\n"
        "agent = holdfast.Agent(holdfast.agents.ScriptedModel(script), output_type=Weather)\n"
    )
    done = call(shop, "run typed.py Hello")
    assert json.loads(done.out) == {"city": "Lyon", "degrees": 9}

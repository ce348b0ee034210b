"""The middleware in an agent of deepagents and in its sub-agent, killed in the sub-agent's tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from tests.crash.fork_server import Warm

pytest.importorskip("deepagents", reason="deepagents has an environment of its own: make test-deepagents")

SAID = [
    ["human", "Pay for order a."],
    ["ai", ""],
    ["tool", "Updated file /notes.txt"],
    ["ai", ""],
    ["tool", "It is paid."],
    ["ai", "All is paid."],
]


def kill_and_go_on(warm: Warm, folder: Path, **options: Any) -> dict[str, Any]:
    """Kill it when its sub-agent has paid, and run it again."""
    from .killed_deep_agents import play

    with warm.child(play, str(folder), kill=True, **options) as child:
        assert child.outcome() is None, "it was not killed"
    found: dict[str, Any] = warm.call(play, str(folder), **options)
    return found


def test_a_sub_agent_that_is_killed_in_its_tool_pays_once(loaded_warm: Warm, quick_path: Path) -> None:
    """The task is run again, and its sub-agent goes on where it was; what was said is as without the kill."""
    found = kill_and_go_on(loaded_warm, quick_path)
    assert found == {"said": SAID, "files": ["/notes.txt"], "paid": ["a"]}


def test_without_the_middleware_it_pays_twice(loaded_warm: Warm, quick_path: Path) -> None:
    """The same agent, with the same saver."""
    found = kill_and_go_on(loaded_warm, quick_path, durable=False)
    assert (found["said"], found["paid"]) == (SAID, ["a", "a"])


def test_the_calls_of_both_are_in_the_ledger_of_the_thread(
    loaded_warm: Warm, quick_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once, with what became of it; what goes on is a call of the agent."""
    from .killed_deep_agents import play

    with loaded_warm.child(play, str(quick_path), kill=True) as child:
        assert child.outcome() is None, "it was not killed"
    monkeypatch.chdir(quick_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:store.db")
    assert main(["show", "t"]) == 0
    assert "next: agent.invoke(None, " in capsys.readouterr().out
    loaded_warm.call(play, str(quick_path))
    assert main(["export", "t"]) == 0
    calls = capsys.readouterr().out.partition("\ntools\n\n")[2].splitlines()
    assert [one.partition("(")[0] for one in calls] == ["write_file", "task", "pay"]
    assert calls[2].startswith('pay(order="a")  in doubt, then landed  settled by verify: paid a')

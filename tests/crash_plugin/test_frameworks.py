"""Stock agents of frameworks do an effect twice after a kill; with holdfast, they do not."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.crash_test import CrashReport, HttpWorld, run_crash_test

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="forks warm processes: Linux")

NAMES = ("langchain", "langgraph", "openai", "pydantic_ai")
STOCK = tuple(f"stock_{name}" for name in NAMES)
DURABLE = tuple(f"durable_{name}" for name in NAMES)


def kill(name: str, boundary: str | None = None, *, twice: bool = True) -> CrashReport:
    """Kill one of the agents, at all boundaries or at one. Their frameworks are imported by then."""
    module = import_module(f"tests.crash_plugin.{name.partition('_')[2]}_agents")
    return run_crash_test(getattr(module, name), world=HttpWorld(), kill=boundary, twice=twice)


@pytest.mark.parametrize(
    ("name", "hooks"),
    [
        ("stock_langchain", {"model request#1", "model request#2", "node tools#1", "put#1", "put writes#1"}),
        ("stock_langgraph", {"node model#1", "node tools#1", "put#1", "put writes#1"}),
        ("stock_openai", {"model request#1", "model request#2"}),
        ("stock_pydantic_ai", {"model request#1", "model request#2"}),
    ],
)
def test_a_stock_agent_repeats_an_effect_after_a_kill(name: str, hooks: set[str]) -> None:
    """Its boundaries are its requests, and where its framework's own hooks say that it stands."""
    report = kill(name, "after tool refund#1", twice=False)
    (finding,) = report.findings
    assert finding.verdict == "done twice"
    assert finding.line.startswith("tests/crash_plugin/own_agents.py:")
    assert finding.first.what.startswith('POST /refunds: {"order": "42"} (2 times, not 1)')
    labels = {boundary.partition(" ")[2] for boundary in report.boundaries}
    assert hooks | {"tool refund#1", "POST /refunds#1"} <= labels
    for label in hooks:
        assert {f"before {label}", f"after {label}"} <= set(report.boundaries)


@pytest.mark.parametrize("name", DURABLE)
def test_an_agent_with_holdfast_does_not(name: str) -> None:
    """Killed right after the effect, and once more in the resumption."""
    report = kill(name, "after POST /refunds#1")
    assert report.findings == ()
    assert [one.reached for one in report.runs] == [True, True]
    assert not any("model request" in one for one in report.boundaries)


@pytest.mark.long
@pytest.mark.parametrize("name", DURABLE)
def test_no_boundary_of_an_agent_with_holdfast_ends_otherwise(name: str) -> None:
    """All of them, and once more in each resumption."""
    report = kill(name)
    assert report.findings == ()
    assert all(one.reached for one in report.runs)


@pytest.mark.long
@pytest.mark.parametrize("name", STOCK)
def test_a_stock_agent_repeats_the_effect_from_its_request_on(name: str) -> None:
    """The boundaries of a stock agent are its requests, its hooks, and the commits of its saver."""
    report = kill(name, twice=False)
    twice = [boundary for boundary, verdict in report.verdicts.items() if verdict == "done twice"]
    assert {"after POST /refunds#1", "after tool refund#1"} <= set(twice)
    assert report.verdicts["before POST /refunds#1"] == "same end"
    assert set(report.verdicts.values()) == {"same end", "done twice"}


def test_a_server_of_mcp_dies_with_its_agent() -> None:
    """One that would wait for ever, with a connection to the world, which nothing has to wait for."""

    def check(world: HttpWorld) -> None:
        assert len(world.facts()) == 1
        started = (world.agent_dir / "started").read_text().split()
        assert not [pid for pid in started if os.path.exists(f"/proc/{pid}")]

    scenario = import_module("tests.crash_plugin.mcp_agents").durable_mcp
    report = run_crash_test(scenario, world=HttpWorld(), check=check, kill="after POST /payments#1")
    assert report.findings == ()
    assert [one.reached for one in report.runs] == [True, True]

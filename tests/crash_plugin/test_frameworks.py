"""Stock agents of frameworks do an effect twice after a kill; with holdfast, they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.crash_test import HttpWorld, run_crash_test

from . import other_agents

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="forks warm processes: Linux")


@pytest.mark.parametrize("scenario", [other_agents.stock_graph, other_agents.stock_pydantic_ai])
def test_a_stock_agent_repeats_an_effect_after_a_kill(scenario: object) -> None:
    """The tool runs again, because nothing says that it ran."""
    report = run_crash_test(scenario, world=HttpWorld(), kill="after POST /refunds#1", twice=False)  # type: ignore[arg-type]
    (finding,) = report.findings
    assert finding.verdict == "done twice"
    assert finding.first.what.startswith('POST /refunds: {"order": "42"} (2 times, not 1)')


@pytest.mark.parametrize("scenario", [other_agents.durable_graph, other_agents.durable_pydantic_ai])
def test_the_same_agent_with_holdfast_repeats_nothing(scenario: object) -> None:
    """Some boundaries of it, and those around the effect."""
    report = run_crash_test(scenario, world=HttpWorld(), sample=6)  # type: ignore[arg-type]
    assert report.findings == ()
    around = run_crash_test(scenario, world=HttpWorld(), kill="after POST /refunds#1")  # type: ignore[arg-type]
    assert around.findings == ()
    assert len(around.runs) == 2


@pytest.mark.long
@pytest.mark.parametrize("scenario", [other_agents.durable_graph, other_agents.durable_pydantic_ai])
def test_no_boundary_of_an_agent_with_holdfast_ends_otherwise(scenario: object) -> None:
    """All of them, and once more in each resumption."""
    report = run_crash_test(scenario, world=HttpWorld())  # type: ignore[arg-type]
    assert report.findings == ()
    assert all(one.reached for one in report.runs)


@pytest.mark.long
def test_langgraph_repeats_an_effect_between_the_node_and_its_checkpoint_only() -> None:
    """The boundaries of a stock agent are its requests, and the commits of its saver."""
    report = run_crash_test(other_agents.stock_graph, world=HttpWorld(), twice=False)
    twice = [name for name, verdict in report.verdicts.items() if verdict == "done twice"]
    assert twice[0] == "after POST /refunds#1"
    assert set(report.verdicts.values()) == {"same end", "done twice"}

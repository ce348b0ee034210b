"""Stock agents of frameworks do an effect twice after a kill; with holdfast, they do not."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from holdfast.crash_test import CrashReport, HttpWorld, run_crash_test

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="forks warm processes: Linux")


def kill(name: str, boundary: str | None = None, *, twice: bool = True) -> CrashReport:
    """Kill one of the agents, at all boundaries or at one. Their frameworks are imported by then."""
    module = import_module(f"tests.crash_plugin.{name.partition('_')[2]}_agents")
    return run_crash_test(getattr(module, name), world=HttpWorld(), kill=boundary, twice=twice)


def test_stock_langgraph_repeats_an_effect_after_a_kill() -> None:
    """The node runs again, because nothing says that its tool ran."""
    report = kill("stock_langgraph", "after POST /refunds#1", twice=False)
    (finding,) = report.findings
    assert finding.verdict == "done twice"
    assert finding.first.what.startswith('POST /refunds: {"order": "42"} (2 times, not 1)')


@pytest.mark.parametrize("name", ["durable_langgraph", "durable_pydantic_ai"])
def test_an_agent_with_holdfast_does_not(name: str) -> None:
    """Killed right after the effect, and once more in the resumption."""
    report = kill(name, "after POST /refunds#1")
    assert report.findings == ()
    assert [one.reached for one in report.runs] == [True, True]


@pytest.mark.long
@pytest.mark.parametrize("name", ["durable_langgraph", "durable_pydantic_ai"])
def test_no_boundary_of_an_agent_with_holdfast_ends_otherwise(name: str) -> None:
    """All of them, and once more in each resumption."""
    report = kill(name)
    assert report.findings == ()
    assert all(one.reached for one in report.runs)


@pytest.mark.long
@pytest.mark.parametrize("name", ["stock_langgraph", "stock_pydantic_ai"])
def test_a_stock_agent_repeats_the_effect_from_its_request_on(name: str) -> None:
    """The boundaries of a stock agent are its requests, and the commits of its saver."""
    report = kill(name, twice=False)
    twice = [boundary for boundary, verdict in report.verdicts.items() if verdict == "done twice"]
    assert twice[0] == "after POST /refunds#1"
    assert set(report.verdicts.values()) == {"same end", "done twice"}

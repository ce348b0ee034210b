"""Names that do not depend on timing, and resumptions that go in circles."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.crash_test import (
    CrashReport,
    CrashWorld,
    DirectoryWorld,
    HttpRequest,
    HttpResponse,
    HttpWorld,
    run_crash_test,
)

from . import parallel_agents

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="forks warm processes: Linux")


def run_in_order(scenario: Callable[[Any], Any], *orders: str, **options: Any) -> CrashReport:
    """A crash test of the scenario, whose operations come in this order."""

    def answer(request: HttpRequest, done: Sequence[HttpRequest]) -> HttpResponse:
        if request.method == "GET":
            return HttpResponse(200, orders, done=False)
        return HttpResponse(201)

    return run_crash_test(scenario, world=HttpWorld(answer), **options)


@pytest.mark.parametrize("scenario", [parallel_agents.refund_in_threads, parallel_agents.refund_in_tasks])
def test_what_may_run_in_parallel_is_named_by_what_it_does(scenario: Callable[[Any], Any]) -> None:
    """The same names in the same order, and the same effect for each of them, whichever came first."""
    one = run_in_order(scenario, "9", "10", "41", sample=1)
    other = run_in_order(scenario, "41", "10", "9", sample=1)
    assert one.boundaries == other.boundaries
    assert [name.startswith("after") for name in one.boundaries] == [False, True] * 3 + [False]
    for orders in (("9", "10"), ("10", "9")):
        report = run_in_order(scenario, *orders, kill="after POST /refunds#1", twice=False)
        assert 'POST /refunds: {"order": "9"} (2 times, not 1)' in report.findings[0].first.what
        report = run_in_order(scenario, *orders, kill="after POST /refunds#2", twice=False)
        assert 'POST /refunds: {"order": "10"} (2 times, not 1)' in report.findings[0].first.what


@pytest.mark.parametrize("name", ["own_agents.unverified_pair", "pydantic_ai_agents.stock_pydantic_ai"])
def test_findings_are_the_same_in_the_same_order_with_two_processes_at_a_time(name: str) -> None:
    """An agent whose calls run in parallel, and one of a framework."""
    module, _, function = name.partition(".")
    scenario = getattr(import_module(f"tests.crash_plugin.{module}"), function)
    one, other = (run_crash_test(scenario, world=HttpWorld(), workers=2, sample=6) for _ in range(2))
    assert one.findings
    assert one.boundaries == other.boundaries
    assert [(f.verdict, f.line) for f in one.findings] == [(f.verdict, f.line) for f in other.findings]
    if function == "stock_pydantic_ai":
        # Of parallel calls, it is a matter of timing what else has happened at a kill.
        assert one.as_text() == other.as_text()


def test_what_one_task_does_is_numbered_as_it_comes() -> None:
    """In a plain loop, the first is the first."""
    scenario = parallel_agents.refund_one_after_the_other
    report = run_in_order(scenario, "42", "41", kill="after POST /refunds#1", twice=False)
    assert report.findings[0].first.what == 'POST /refunds: {"order": "42"} (2 times, not 1)'


@pytest.mark.parametrize("fork", [True, False])
@pytest.mark.parametrize("scenario", [parallel_agents.post_with_httpx, parallel_agents.post_with_async_httpx])
def test_a_client_that_is_imported_late_says_which_line_makes_a_request(
    scenario: Callable[[Any], Any], fork: bool
) -> None:
    """Also in a process that was started afresh, and imports it in the middle of the scenario."""
    kill = "after POST /refunds#1"
    report = run_crash_test(scenario, world=HttpWorld(), kill=kill, twice=False, fork=fork)
    (finding,) = report.findings
    lines, first = inspect.getsourcelines(scenario)
    number = next(number for number, line in enumerate(lines, first) if "/refunds" in line)
    assert finding.line == f"tests/crash_plugin/parallel_agents.py:{number}"


def test_a_request_of_an_unknown_client_is_found_at_the_line_of_the_scenario() -> None:
    """Of a tool, it would be the tool's."""
    scenario = parallel_agents.post_with_a_socket
    kill = "after POST /refunds#1"
    report = run_crash_test(scenario, world=HttpWorld(), kill=kill, twice=False)
    (finding,) = report.findings
    line = inspect.getsourcelines(scenario)[1]
    assert (finding.verdict, finding.line) == ("done twice", f"tests/crash_plugin/parallel_agents.py:{line}")


@pytest.mark.parametrize(
    ("scenario", "world", "kill"),
    [
        (parallel_agents.writes_in_circles, DirectoryWorld(), "before write world/work#1"),
        (parallel_agents.asks_in_circles, HttpWorld(), "before POST /refunds#1"),
    ],
)
def test_a_resumption_that_goes_in_circles_is_hung(
    scenario: Callable[[Any], Any], world: CrashWorld, kill: str
) -> None:
    """It is never silent, so no timeout ends it; how often it was heard of does."""
    report = run_crash_test(scenario, world=world, kill=kill)
    (finding,) = report.findings
    assert finding.verdict == "hung"
    assert finding.first.what.startswith("it goes in circles: 10")

"""What a crash test finds: in agents without holdfast, with it, and with mistakes in how they use it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.crash_test import CrashReport, DirectoryWorld, HttpWorld, run_crash_test

from . import own_agents

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="forks warm processes: Linux")


def line_of(function: Callable[..., Any], containing: str) -> str:
    """The line in a function that contains a text, as reports show it."""
    lines, first = inspect.getsourcelines(function)
    number = next(number for number, line in enumerate(lines, first) if containing in line)
    return f"{Path(inspect.getfile(function)).relative_to(Path.cwd())}:{number}"


def found(report: CrashReport) -> list[tuple[str, str]]:
    """Verdict and line of each finding."""
    return [(one.verdict, one.line) for one in report.findings]


def test_a_plain_loop_does_twice_what_it_did_before_its_note() -> None:
    """It notes what it has done once it has done it; between the two, a crash repeats it."""
    report = run_crash_test(own_agents.plain_loop, world=HttpWorld())
    assert report.boundaries == (
        "before POST /refunds#1",
        "after POST /refunds#1",
        "before write agent/done.json#1",
        "during write agent/done.json#1",
        "after write agent/done.json#1",
        "before POST /refunds#2",
        "after POST /refunds#2",
        "before write agent/done.json#2",
        "during write agent/done.json#2",
        "after write agent/done.json#2",
        "before end",
    )
    assert report.verdicts["after POST /refunds#1"] == "done twice"
    # Between its making the file empty and its writing, nothing is left to go on with.
    assert report.verdicts["during write agent/done.json#1"] == "lost"
    assert found(report) == [
        ("done twice", line_of(own_agents.post, "urlopen")),
        ("lost", line_of(own_agents.post, "urlopen")),
        ("diverged", line_of(own_agents.plain_loop, "json.loads")),
    ]
    assert report.findings[0].first.kills == ("after POST /refunds#1",)
    assert "holdfast.tool" in report.findings[0].first.mend


def test_an_agent_whose_tools_can_be_asked_ends_the_same_whenever_it_dies() -> None:
    """And once more in each resumption; its two calls run in parallel. The page has them all."""
    report = run_crash_test(own_agents.durable, world=HttpWorld(), sample=8)
    assert report.findings == ()
    assert {one for one in report.boundaries if "refund" in one} == {
        f"{phase} {name}#{number}{end}"
        for phase in ("before", "after")
        for name, end in (("refund", ":issued"), ("refund", ":completed"), ("POST /refunds", ""))
        for number in (1, 2)
    }
    assert {len(one.kills) for one in report.runs} == {1, 2}


def test_what_nothing_can_find_out_is_in_doubt_and_says_who_must_answer() -> None:
    """Killed after the intent, before the outcome: a person is told what to type."""
    report = run_crash_test(own_agents.unverified, world=HttpWorld(), kill="after POST /refunds#1")
    assert found(report) == [("in doubt", line_of(own_agents.unverified_refund.function, "@holdfast"))]
    first = report.findings[0].first
    assert "holdfast resolve orders call_0 landed|not-landed" in first.what
    assert "verify=" in first.mend


@pytest.mark.parametrize(
    ("scenario", "verdict", "boundary", "line", "mend"),
    [
        (
            own_agents.read_that_writes,
            "done twice",
            "after POST /refunds#1",
            (own_agents.refund_as_read.function, "post("),
            "declared as one that changes nothing",
        ),
        (
            own_agents.verify_says_never,
            "done twice",
            "after POST /refunds#1",
            (own_agents.refund.function, "post("),
            "answered NotLanded",
        ),
        (
            own_agents.verify_says_always,
            "lost",
            "after refund#1:issued",
            (own_agents.post, "urlopen"),
            "answered Landed",
        ),
        (
            own_agents.effect_before_intent,
            "done twice",
            "after POST /refunds#1",
            (own_agents.post, "urlopen"),
            "before its intent",
        ),
        (
            own_agents.state_in_memory,
            "diverged",
            "after collect#1:completed",
            (own_agents.post, "urlopen"),
            "session.state",
        ),
    ],
)
def test_a_mistake_is_found_at_its_line_with_what_to_declare(
    scenario: Callable[..., Any],
    verdict: str,
    boundary: str,
    line: tuple[Callable[..., Any], str],
    mend: str,
) -> None:
    """Planted mistakes, each with the kill that shows it."""
    report = run_crash_test(scenario, world=HttpWorld(), kill=boundary)
    assert (verdict, line_of(*line)) in found(report)
    assert mend in next(one for one in report.findings if one.verdict == verdict).first.mend


def test_a_tool_that_depends_on_the_time_is_found_without_a_kill() -> None:
    """Two undisturbed runs differ; nothing else could be judged, until the world ignores the time."""
    report = run_crash_test(own_agents.tool_of_time, world=HttpWorld())
    assert found(report) == [("diverged", line_of(own_agents.post, "urlopen"))]
    assert "ignore=" in report.findings[0].first.mend
    ignoring = HttpWorld(ignore=[r"\d{15,}"])
    calm = run_crash_test(own_agents.tool_of_time, world=ignoring, kill="after POST /refunds#1")
    assert calm.findings == ()


def test_a_resumption_that_waits_forever_is_hung() -> None:
    """It waits for a lock that the killed process had."""
    report = run_crash_test(
        own_agents.hangs_when_resumed,
        world=DirectoryWorld(),
        kill="before write agent/work#1",
        # The resumption never ends. If the first process were that slow, it would count as hung as well.
        timeout_s=2,
    )
    assert [one.verdict for one in report.findings] == ["hung"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("read_that_writes", {"same end", "done twice"}),
        ("verify_says_never", {"same end", "done twice"}),
        ("verify_says_always", {"same end", "lost"}),
        ("effect_before_intent", {"same end", "done twice"}),
        ("state_in_memory", {"same end", "diverged"}),
        ("unverified", {"same end", "in doubt"}),
    ],
)
def test_every_boundary_of_a_mistake_has_one_of_two_verdicts(name: str, verdicts: set[str]) -> None:
    """The whole matrix of each planted mistake."""
    report = run_crash_test(getattr(own_agents, name), world=HttpWorld())
    assert set(report.verdicts.values()) == verdicts


@pytest.mark.long
def test_three_hundred_boundaries_are_all_tried_and_end_the_same() -> None:
    """A run of an agent with many steps; nothing about its length changes a verdict."""
    report = run_crash_test(own_agents.long_durable, world=HttpWorld())
    assert len(report.verdicts) >= 300
    assert report.findings == ()


@pytest.mark.long
def test_the_findings_are_the_same_each_time() -> None:
    """In the same order, with the same names, with as many processes as there are."""
    reports = [run_crash_test(own_agents.state_in_memory, world=HttpWorld()) for _ in range(3)]
    assert len({report.as_text() for report in reports}) == 1
    assert reports[0].boundaries == reports[1].boundaries == reports[2].boundaries

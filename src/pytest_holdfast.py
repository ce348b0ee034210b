"""The pytest plugin of holdfast: `holdfast_crash`, which kills an agent at every boundary and resumes it.

A module of its own, outside of the package: pytest imports it at every start, and nothing of holdfast with
it. The package is imported by the first test that uses the fixture.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from holdfast.crash_test import CrashReport, CrashWorld

_REPORTS = pytest.StashKey[list[Any]]()
_ATTRIBUTE = "holdfast_crash"


class HoldfastCrash(Protocol):
    """What the fixture `holdfast_crash` is."""

    def __call__(
        self,
        scenario: Callable[[Any], Any],
        *,
        world: CrashWorld | None = None,
        resume: Callable[[Any], Any] | None = None,
        check: Callable[[Any], object] | None = None,
        allow: Iterable[str] | None = None,
        sample: int | None = None,
        twice: bool | None = None,
        timeout_s: float | None = None,
    ) -> CrashReport:
        """Kill and resume the scenario; the test fails if a run ends otherwise than undisturbed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("holdfast", "crash tests of agents (holdfast)")
    group.addoption(
        "--holdfast-kill",
        metavar="NAME",
        help="kill at this boundary only, such as 'after refund#1:issued', or at two: 'A > B'",
    )
    group.addoption(
        "--holdfast-sample", metavar="N", type=int, help="try N boundaries of each scenario, spread evenly"
    )
    group.addoption(
        "--holdfast-start",
        choices=("fork", "spawn"),
        default="fork",
        help="how processes start: forked from a warm one (Linux), or each afresh, which is slower",
    )
    group.addoption("--holdfast-html", metavar="FILE", help="write the reports as one HTML page")
    group.addoption("--holdfast-markdown", metavar="FILE", help="write the reports as Markdown tables")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "holdfast_crash(world=…, resume=…, check=…, allow=…, sample=…, twice=…, timeout_s=…): defaults for "
        "the fixture holdfast_crash; tests that use the fixture have the marker",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that use the fixture can be chosen with `-m holdfast_crash`."""
    if _ATTRIBUTE in getattr(item, "fixturenames", ()) and item.get_closest_marker(_ATTRIBUTE) is None:
        item.add_marker(_ATTRIBUTE)


@pytest.fixture
def holdfast_crash(request: pytest.FixtureRequest) -> HoldfastCrash:
    """Kill an agent at every boundary, resume it, and fail the test if it ends otherwise than undisturbed.

    `holdfast_crash(scenario, world=DirectoryWorld())`: see `holdfast.crash_test`.
    """
    reports = request.node.stash.setdefault(_REPORTS, [])

    def crash(scenario: Callable[[Any], Any], **given: Any) -> CrashReport:
        return _crash(request, reports, scenario, given)

    return crash


def _crash(
    request: pytest.FixtureRequest, reports: list[Any], scenario: Callable[[Any], Any], given: dict[str, Any]
) -> CrashReport:
    from holdfast.crash_test import DirectoryWorld, run_crash_test
    from holdfast.crash_test.report import check_verdicts

    config = request.config
    marker = request.node.get_closest_marker(_ATTRIBUTE)
    options = {**(marker.kwargs if marker else {}), **given}
    options = {name: value for name, value in options.items() if value is not None}
    allow = check_verdicts(options.pop("allow", ("in doubt",)))
    sample = config.getoption("--holdfast-sample")
    if sample is not None:
        options["sample"] = sample
    # Under xdist, the other processors have tests of their own.
    workers = 1 if os.environ.get("PYTEST_XDIST_WORKER") else None
    report = run_crash_test(
        scenario,
        world=options.pop("world", None) or DirectoryWorld(),
        kill=config.getoption("--holdfast-kill"),
        fork=config.getoption("--holdfast-start") == "fork",
        workers=workers,
        **options,
    )
    report = report.made_by(_as_argument(request.node.nodeid, config))
    reports.append(report.as_json())
    for name, value in report.as_properties():
        request.node.user_properties.append((name, value))
    if report.failing(allow):
        pytest.fail(report.as_text(), pytrace=False)
    return report


def _as_argument(node: str, config: pytest.Config) -> str:
    """The id of a test as seen from where pytest was started."""
    file, colons, rest = node.partition("::")
    return os.path.relpath(config.rootpath / file, config.invocation_params.dir) + colons + rest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send the reports to the process that prints: under xdist, that is another one."""
    report = yield
    if report.when == "call" and (found := item.stash.get(_REPORTS, None)):
        setattr(report, _ATTRIBUTE, found)
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what was found, and write the pages."""
    found: list[tuple[Any, str]] = []
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for one in terminalreporter.stats.get(outcome, ()):
            printed = one.longreprtext if outcome == "failed" else ""
            found.extend((data, printed) for data in getattr(one, _ATTRIBUTE, ()))
    if not found:
        return
    from holdfast.crash_test.report import CrashReport, as_html

    reports = sorted(
        ((CrashReport.from_json(data), printed) for data, printed in found),
        key=lambda one: one[0].scenario,
    )
    terminalreporter.section("what a crash would do")
    for report, printed in reports:
        text = report.as_text()
        # Of a test that failed by its report, the rest is in the failure.
        terminalreporter.write_line(text.partition("\n")[0] if text in printed else text)
    if page := config.getoption("--holdfast-html"):
        Path(page).write_text(as_html([one for one, _ in reports]), encoding="utf-8")
    if page := config.getoption("--holdfast-markdown"):
        Path(page).write_text("\n".join(one.as_markdown() for one, _ in reports), encoding="utf-8")

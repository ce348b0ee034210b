"""What a crash test found, as a report: text, Markdown, one HTML page, properties for JUnit."""

from __future__ import annotations

import html
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct, structs

from ..errors import BadInput

Verdict: TypeAlias = Literal["same end", "in doubt", "done twice", "lost", "diverged", "hung"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
_WORST_FIRST: Final[tuple[Verdict, ...]] = ("hung", "done twice", "lost", "diverged", "in doubt", "same end")


def check_verdicts(allow: Iterable[str]) -> tuple[str, ...]:
    """The verdicts with which a test passes all the same, or `BadInput` if one of them is none."""
    named = (allow,) if isinstance(allow, str) else tuple(allow)
    for one in named:
        if one not in VERDICTS:
            raise BadInput(f"allow={one!r} is no verdict; there are {', '.join(map(repr, VERDICTS))}")
    return named


class CrashRun(Struct, frozen=True, kw_only=True):
    """One scenario that was killed, once or twice, and how it ended.

    `kills` are the names of the boundaries; `what` says what is wrong, `line` where in the user's code, and
    `mend` what to declare. `reached` is False if the process ended without coming to the boundary.
    """

    kills: tuple[str, ...]
    place: int
    verdict: Verdict
    what: str = ""
    line: str = ""
    mend: str = ""
    reached: bool = True

    @property
    def name(self) -> str:
        """What `--holdfast-kill` takes."""
        return " > ".join(self.kills)


class Finding(Struct, frozen=True, kw_only=True):
    """Failing runs with one cause: a line of the user's code, and a verdict. The shortest run comes first."""

    line: str
    verdict: Verdict
    runs: tuple[CrashRun, ...]

    @property
    def first(self) -> CrashRun:
        """The shortest."""
        return self.runs[0]


class CrashReport(Struct, frozen=True, kw_only=True):
    """The runs of one crash test, in the order of their boundaries."""

    scenario: str
    boundaries: tuple[str, ...]
    runs: tuple[CrashRun, ...]
    unstable: str = ""
    """Why nothing could be compared: two undisturbed runs ended differently."""
    note: str = ""
    test: str = ""
    """The test that made it, as pytest takes it on its command line."""

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The worst verdict of each boundary that was tried."""
        found: dict[str, Verdict] = {}
        for run in self.runs:
            if not run.kills:
                continue
            name = run.kills[0]
            found[name] = min(found.get(name, "same end"), run.verdict, key=_WORST_FIRST.index)
        return found

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that did not end as the undisturbed run, by line and verdict, the worst first."""
        groups: dict[tuple[str, Verdict], list[CrashRun]] = {}
        for run in self.runs:
            if run.verdict != "same end":
                groups.setdefault((run.line, run.verdict), []).append(run)
        found = [
            Finding(line=line, verdict=verdict, runs=tuple(sorted(runs, key=_length)))
            for (line, verdict), runs in groups.items()
        ]
        return tuple(sorted(found, key=lambda one: (_WORST_FIRST.index(one.verdict), *_length(one.first))))

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many boundaries have each verdict."""
        found = Counter(self.verdicts.values())
        return {verdict: found[verdict] for verdict in VERDICTS}

    def failing(self, allow: Iterable[str]) -> tuple[Finding, ...]:
        """The findings with other verdicts than these."""
        allowed = set(allow)
        return tuple(one for one in self.findings if one.verdict not in allowed)

    def as_text(self) -> str:
        """For a terminal."""
        lines = [f"{self.scenario}: {self.summary}"]
        lines.extend(f"  {one}" for one in self.notes)
        for number, finding in enumerate(self.findings, 1):
            first = finding.first
            lines += ["", f"{number}. {finding.verdict}: {finding.line or 'no line of yours'}"]
            lines += [f"   killed {' and, resuming, '.join(first.kills)}"] if first.kills else []
            lines.append(f"   -> {first.what}")
            if first.mend:
                lines.append(f"   mend: {first.mend}")
            lines += [f"   again: {self._again(first)}"] if first.kills else []
            if len(finding.runs) > 1:
                lines.append(f"   and {len(finding.runs) - 1} more runs with this line and verdict")
        return "\n".join(lines)

    def _again(self, run: CrashRun) -> str:
        """The command that makes a run again."""
        test = f" {shlex.quote(self.test)}" if self.test else ""
        name = shlex.quote(run.name) if set('"$`\\!') & set(run.name) else f'"{run.name}"'
        return f"pytest{test} --holdfast-kill={name}"

    def as_markdown(self) -> str:
        """For a comment on a pull request."""
        lines = [f"### {_cell(self.scenario)}: {self.summary}", ""]
        for one in self.notes:
            lines += [_cell(one), ""]
        lines += ["| verdict | boundaries |", "| --- | ---: |"]
        lines.extend(f"| {verdict} | {count} |" for verdict, count in self.counts.items())
        if self.findings:
            lines += ["", "| where | killed | what happened | what to declare |", "| --- | --- | --- | --- |"]
        for finding in self.findings:
            first = finding.first
            more = f" (and {len(finding.runs) - 1} more)" if len(finding.runs) > 1 else ""
            lines.append(
                f"| `{_cell(finding.line or '-')}` | {_cell(first.name)}{more} "
                f"| **{finding.verdict}**: {_cell(first.what)} | {_cell(first.mend)} |"
            )
        return "\n".join(lines) + "\n"

    def as_properties(self) -> list[tuple[str, str]]:
        """Names and values for JUnit."""
        found = [
            (f"holdfast.{verdict.replace(' ', '_')}", str(count)) for verdict, count in self.counts.items()
        ]
        found.insert(0, ("holdfast.boundaries", str(len(self.boundaries))))
        for number, finding in enumerate(self.findings, 1):
            first = finding.first
            found.append((f"holdfast.finding.{number}", f"{finding.verdict} {finding.line}: {first.name}"))
        return found

    def made_by(self, test: str) -> CrashReport:
        """The same report of this test."""
        return structs.replace(self, test=test)

    def as_json(self) -> Any:
        """Plain values, for `from_json`."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, data: Any) -> CrashReport:
        """The report that `as_json` made these values of."""
        runs = [CrashRun(**{**one, "kills": tuple(one["kills"])}) for one in data["runs"]]
        return cls(**{**data, "runs": tuple(runs), "boundaries": tuple(data["boundaries"])})

    @property
    def summary(self) -> str:
        """How many boundaries ended how, in a line."""
        tried = len(self.verdicts)
        of = "" if tried == len(self.boundaries) else f" of {len(self.boundaries)}"
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)
        return f"killed at {tried}{of} boundaries: {counts or 'nothing to compare'}"

    @property
    def notes(self) -> list[str]:
        """What else is to be known."""
        missed = [run.name for run in self.runs if not run.reached]
        return [
            *([self.unstable] if self.unstable else []),
            *([self.note] if self.note else []),
            *([f"{len(missed)} runs ended before their boundary, the first: {missed[0]}"] if missed else []),
        ]


def _length(run: CrashRun) -> tuple[int, int]:
    return (len(run.kills), run.place)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def shown_line(line: Sequence[Any] | None) -> str:
    """A line of the user's code, as seen from where the tests run."""
    if not line:
        return ""
    file = os.path.relpath(line[0])
    return f"{line[0] if file.startswith('..') else file}:{line[1]}"


_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
body { color: #1b1f24; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { border: 1px solid #d0d7de; padding: .3rem .6rem; text-align: left; vertical-align: top }
code { font: 13px ui-monospace, monospace }
.same_end { background: #e6f4ea } .in_doubt { background: #fff8c5 } .diverged { background: #ffe8d1 }
.done_twice, .lost, .hung { background: #ffdce0 }
@media (prefers-color-scheme: dark) {
body { background: #0d1117; color: #e6edf3 } td, th { border-color: #30363d }
.same_end { background: #12351f } .in_doubt { background: #3d3200 } .diverged { background: #4a2a0a }
.done_twice, .lost, .hung { background: #4c1418 }
}
"""


def as_html(reports: Sequence[CrashReport]) -> str:
    """One page with all reports. It loads nothing and runs no script."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>What would a crash do?</title>",
        f"<style>{_STYLE}</style></head><body><h1>What would a crash do?</h1>",
    ]
    for report in reports:
        parts.append(f"<h2><code>{_text(report.scenario)}</code></h2><p>{_text(report.summary)}</p>")
        parts.extend(f"<p>{_text(one)}</p>" for one in report.notes)
        if report.findings:
            heads = ("verdict", "where", "killed", "what happened", "what to declare", "runs")
            parts.append("<table><tr>" + "".join(f"<th>{one}</th>" for one in heads) + "</tr>")
            for finding in report.findings:
                first = finding.first
                parts.append(
                    f"<tr class='{_class(finding.verdict)}'><td>{finding.verdict}</td>"
                    f"<td><code>{_text(finding.line)}</code></td><td><code>{_text(first.name)}</code></td>"
                    f"<td>{_text(first.what)}</td><td>{_text(first.mend)}</td>"
                    f"<td>{len(finding.runs)}</td></tr>"
                )
            parts.append("</table>")
        columns = "".join(f"<th>{one}</th>" for one in ("boundary", *VERDICTS))
        parts.append(f"<table><tr>{columns}</tr>")
        for name, verdict in report.verdicts.items():
            cells = "".join(_dot(verdict) if one == verdict else "<td></td>" for one in VERDICTS)
            parts.append(f"<tr><td><code>{_text(name)}</code></td>{cells}</tr>")
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>\n"])


def _text(text: str) -> str:
    return html.escape(text)


def _dot(verdict: Verdict) -> str:
    return f"<td class='{_class(verdict)}'>&#9679;</td>"


def _class(verdict: Verdict) -> str:
    return verdict.replace(" ", "_")

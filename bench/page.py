"""The page: tables and plots, and what they come to. All of it is written from the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.better import list_better
from bench.explanations import WHY_MISSED
from bench.figures import Results, Table, spoken
from bench.headlines import list_headlines
from bench.tables import (
    dispatch_table,
    fleet_table,
    growth_tables,
    long_table,
    markdown,
    memory_table,
    proxy_table,
    startup_table,
    throughput_table,
)
from bench.verdicts import Verdict, judge, watch
from bench.view import View

MEASURED = """\
- A step is two messages of 1,000 characters (slices of Python source), the same for every subject.
- The subjects of a table are measured **in turns**: each has a process and a place of its own, all of them
  are open at the same time, and one after another takes a round (some steps, a fraction of a second, a load)
  while the others wait. What else the machine does hits all of them. A ratio is the median of the ratios of
  single rounds. Figures are medians of the rounds, with the quartiles behind them; a figure without them was
  measured once.
- For the floor, subjects take single steps in turns in one process.
- All sync fully where they can: that is the default, except for those that never sync and have no setting
  for it. The column *durability* names them. Syncs are counted by strace in runs of their own; on
  PostgreSQL, those of the server's processes for the subject.
- A growing session is one run that is looked at as it passes its marks. It stops when its time is over, or
  when the next mark would take too long if the time of steps went on growing as it did.
- Bytes are those of the files, or of the database without those of an empty one. SQLite's write-ahead log is
  first copied into the database, as its next checkpoint would do, and is then not counted; nor is the
  server's.
- *Load* reads and decodes what the next process needs to go on. It is measured in two ways: in another
  process, which opens the store anew each time, and from the store that is open. Modules are imported before;
  *Start-up* says what that takes. DBOS is read by its client: a second process that launches it would run
  the workflow.
- *Exponents*, of the total time and of the bytes, are fitted by least squares on logarithms: 1 is in
  proportion to the steps, 2 to their square.
- PostgreSQL is started by the benchmark on the same machine, with all its syncs, and reached by its socket.
"""


def write_page(results: Results, folder: Path) -> None:
    """`results.md`, and the plots beside it, if they can be drawn."""
    plots: list[str] = []
    trouble = ""
    try:
        from bench.plots import draw_all

        plots = draw_all(View(results), folder / "results")
    except ImportError as error:
        trouble = f"The plots were not drawn: {error}."
    (folder / "results.md").write_text("\n".join(page_lines(results, plots, trouble)) + "\n")


def page_lines(results: Results, plots: Sequence[str], trouble: str = "") -> Iterator[str]:
    """Line by line."""
    view = View(results)
    yield from ("# Results", "", *_about(results), "")
    yield from ("## In short", "", *list_headlines(view), "")
    yield from _problems(results, trouble)
    yield from _plot(plots, "overview", "Time per step and bytes on disk as a session grows")
    aims = judge(view)
    yield from ("## Aims", "", *list_aims(aims), "", *list_reasons(aims))
    yield from ("No aims, but watched, so that they do not become worse unnoticed:", "")
    yield from (*list_aims(watch(view)), "")
    yield from ("## Where another one is better", "", *_better(view), "")
    yield from ("## How it was measured", "", MEASURED)
    yield from ("## Growth", "")
    yield from _plot(plots, "time", "Time per step as a session grows, by kind of subject")
    yield from _plot(plots, "bytes", "Bytes on disk as a session grows, by kind of subject")
    yield from growth_tables(view)
    yield from ("## Throughput", "")
    yield from _plot(plots, "throughput", "Durable steps a second, by sessions at once")
    yield from throughput_table(view)
    yield from _crashes(results)
    for title, lines in (
        ("Dispatch", dispatch_table(view)),
        ("MCP proxy", proxy_table(view)),
        ("Long sessions", long_table(view)),
        ("Start-up", startup_table(view)),
        ("Memory", memory_table(view)),
        ("Fleet", fleet_table(view)),
    ):
        yield from (f"## {title}", "", *lines)


def _about(results: Results) -> Iterator[str]:
    renewed = [["measured again", f"{name}: {date}"] for name, date in results.renewed.items()]
    yield from markdown(["", ""], [*([name, what] for name, what in results.about.items()), *renewed])
    yield ""
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in results.versions.items()) + "."
    if results.quick:
        yield ""
        yield "**The quick form**: short and once. For figures to rely on, run it in full."


def _problems(results: Results, trouble: str) -> Iterator[str]:
    failed = [f"{section.name}: {problem}" for section in results.sections for problem in section.problems]
    failed += [trouble] if trouble else []
    if failed:
        yield from ("## What failed", "", *(f"- {line}" for line in failed), "")


def list_aims(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """What is expected, and whether it came true; if it did not, by how much."""
    words = {True: "met", False: "**not met**", None: "not measured"}
    rows = [
        [
            words[one.met],
            one.aim,
            "–" if one.figure is None else f"{spoken(one.figure)} {one.unit}".strip(),
            f"at {'least' if one.at_least else 'most'} {one.limit:g}",
            _distance(one),
        ]
        for one in verdicts
    ]
    yield from markdown(["", "aim", "measured", "expected", "missed by"], rows)


def list_reasons(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Why aims were missed, as far as it was found out."""
    reasons: dict[str, list[str]] = {}
    for one in verdicts:
        if one.met is False and one.aim in WHY_MISSED:
            reasons.setdefault(WHY_MISSED[one.aim], []).append(one.aim)
    yield from (f"- {'; '.join(aims)}: {why}" for why, aims in reasons.items())
    yield from [""] if reasons else []


def _distance(one: Verdict) -> str:
    """By how much an aim was missed."""
    if one.figure is None or one.met:
        return ""
    away = abs(one.figure - one.limit)
    share = f" ({away / one.limit:.0%})" if one.limit else ""
    return f"{spoken(away)}{share}"


def _better(view: View) -> Iterator[str]:
    lines = list_better(view)
    yield from (f"- {line}" for line in lines)
    if not lines:
        yield "Nowhere, in what was measured."


def _crashes(results: Results) -> Iterator[str]:
    yield from ("## Crashes", "")
    if results.crashes is None:
        yield from ("Not in this run.", "")
    else:
        yield from _as_made(results.crashes)
    if results.crash_tests is not None:
        yield from ("## Crash tests", "", *_as_made(results.crash_tests))


def _as_made(table: Table) -> Iterator[str]:
    yield from (f"{table.title}.", "", *markdown(table.columns, table.rows), "")
    yield from (*(f"- {note}" for note in table.notes), "")


def _plot(plots: Sequence[str], name: str, words: str) -> Iterator[str]:
    if name in plots:
        yield from (f"![{words}](results/{name}.svg)", "")

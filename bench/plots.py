"""The plots of the page: log-log, each line with its name at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib

from bench.subjects.catalogue import AGENTS, GRAPHS, MESSAGES, PUTS, RUNS, STEPS, SUBJECTS, Subject
from bench.view import View

matplotlib.use("Agg")
# Letters stay letters: a figure can be searched, and is written the same each time.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.size": 9})

from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import LogLocator  # noqa: E402

OURS: Final = "#0b6e4f"
FLOOR: Final = "#8a8a8a"
PEERS: Final = ("#c1440e", "#3b5bdb", "#b8860b", "#8e44ad", "#0f8fa8", "#d6336c")
MARKERS: Final = "osD^vP"

OVERVIEW: Final = (
    "raw SQLite",
    "holdfast SQLite",
    "HoldfastSaver SQLite",
    "HoldfastStepStore",
    "OpenAI SQLiteSession",
    "AsyncSqliteSaver",
    "graph, AsyncSqliteSaver, DeltaChannel",
    "SqliteStepStore",
    "FileStepStore",
)


class Line(NamedTuple):
    """A subject in a plot."""

    subject: Subject
    points: list[tuple[float, float]]
    end: str = ""
    """Why it ended before the others."""


def draw_all(view: View, folder: Path) -> list[str]:
    """Every plot there are figures for, as SVG and as PNG; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    if view.results.growth:
        panels = {
            "messages: SQLite and files": _of(MESSAGES, "SQLite", "files"),
            "messages: PostgreSQL": _of(MESSAGES, "PostgreSQL"),
            "LangGraph checkpoints, put directly": _of(PUTS, "SQLite", "PostgreSQL"),
            "LangGraph graphs": _of(GRAPHS, "SQLite", "PostgreSQL"),
            "pydantic-ai step stores": _of(STEPS, "SQLite", "files"),
            "pydantic-ai agents": _of(AGENTS, "", "SQLite"),
            "OpenAI Agents runs": _of(RUNS, "", "SQLite"),
        }
        for name, figure, scale, words in (
            ("time", "last_ms", 1.0, "milliseconds per step (last 5 %)"),
            ("bytes", "disk_bytes", 1e-6, "megabytes on disk"),
        ):
            _draw_panels(folder / name, panels, _growth(view, figure, scale), words, "steps of the session")
            drawn.append(name)
        _draw_overview(folder / "overview", view)
        drawn.append("overview")
    if view.results.throughput:
        many = [one for one in SUBJECTS if one.many]
        stores = {
            "SQLite and files": [one for one in many if one.store != "PostgreSQL"],
            "PostgreSQL": [one for one in many if one.store == "PostgreSQL"],
        }
        _draw_panels(
            folder / "throughput", stores, _rates(view), "durable steps a second", "sessions at once"
        )
        drawn.append("throughput")
    return drawn


def _of(group: str, *stores: str) -> list[Subject]:
    return [one for one in SUBJECTS if one.group == group and one.store in stores]


def _growth(view: View, figure: str, scale: float) -> Callable[[Subject], Line]:
    def line(subject: Subject) -> Line:
        most = max(view.group_marks(subject.group), default=0)
        found = [(steps, view.at(subject.name, steps, figure)) for steps in view.marks(subject.name)]
        points = [(float(steps), one.median * scale) for steps, one in found if one and one.median > 0]
        if not points or points[-1][0] == most:
            return Line(subject, points)
        stop = view.stop(subject.name)
        return Line(subject, points, f"stopped at {stop.steps:,}" if stop else "stopped")

    return line


def _rates(view: View) -> Callable[[Subject], Line]:
    def line(subject: Subject) -> Line:
        found = [(size, view.rate(subject.name, size)) for size in view.sessions()]
        return Line(subject, [(float(size), one.median) for size, one in found if one])

    return line


def _draw_overview(path: Path, view: View) -> None:
    chosen = [one for name in OVERVIEW for one in SUBJECTS if one.name == name]
    figure, axes = pyplot.subplots(1, 2, figsize=(14, 5.2))
    for axis, name, scale, words in (
        (axes[0], "last_ms", 1.0, "milliseconds per step"),
        (axes[1], "disk_bytes", 1e-6, "megabytes on disk"),
    ):
        _draw(axis, [_growth(view, name, scale)(one) for one in chosen])
        axis.set_title(words, loc="left", fontweight="bold")
        axis.set_xlabel("steps of two 1 KB messages")
    _save(figure, path)


def _draw_panels(
    path: Path, panels: dict[str, list[Subject]], line: Callable[[Subject], Line], words: str, across: str
) -> None:
    filled = {title: [line(one) for one in subjects] for title, subjects in panels.items()}
    filled = {title: lines for title, lines in filled.items() if any(one.points for one in lines)}
    rows = (len(filled) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(14, 4.3 * rows), squeeze=False)
    for axis in axes.flat[len(filled) :]:
        axis.set_visible(False)
    for axis, (title, lines) in zip(axes.flat, filled.items(), strict=False):
        _draw(axis, lines)
        axis.set_title(title, loc="left", fontweight="bold")
        axis.set_xlabel(across)
        axis.set_ylabel(words)
    _save(figure, path)


def _draw(axis: Any, lines: Sequence[Line]) -> None:
    """The lines, and their names at their ends."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    shades, ours = count(), count()
    # What all have in common is said by the title.
    beginnings = {line.subject.name.partition(", ")[0] for line in lines}
    shared = f"{beginnings.pop()}, " if len(beginnings) == 1 else ""
    labels: list[tuple[float, float, str, str]] = []
    for subject, points, end in lines:
        if not points:
            continue
        if subject.role == "holdfast":
            colour, style = OURS, {"linewidth": 2.6, "marker": MARKERS[next(ours) % len(MARKERS)]}
        elif subject.role == "floor":
            colour, style = FLOOR, {"linewidth": 1.4, "marker": ".", "linestyle": "--"}
        else:
            colour, style = PEERS[next(shades) % len(PEERS)], {"linewidth": 1.4, "marker": "o"}
        axis.plot(*zip(*points, strict=True), markersize=4.5, color=colour, **style)
        x, y = points[-1]
        if end:
            axis.plot([x], [y], marker="x", markersize=10, markeredgewidth=2, color=colour)
        name = subject.name.removeprefix(shared)
        labels.append((x, y, f"{name} – {end}" if end else name, colour))
    axis.grid(True, which="major", color="#e4e4e4")
    axis.spines[["top", "right"]].set_visible(False)
    ticks = sorted({x for line in lines for x, _ in line.points})
    axis.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axis.minorticks_off()
    heights = [y for line in lines for _, y in line.points]
    if heights and max(heights) / min(heights) < 50:
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    _label(axis, labels)


def _label(axis: Any, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """In a column to the right, as near to the lines' ends as there is room, with a thread between."""
    if not labels:
        return
    axis.margins(y=0.08)
    axis.autoscale_view()
    low, high = (axis.transScale.transform((1, y))[1] for y in axis.get_ylim())
    ordered = sorted(labels, key=lambda label: label[1])
    heights = [(axis.transScale.transform((1, y))[1] - low) / (high - low) for _, y, _, _ in ordered]
    gap = min(0.062, 1.0 / len(ordered))
    for at in range(1, len(heights)):
        heights[at] = max(heights[at], heights[at - 1] + gap)
    # Whatever was pushed out at the top comes down again, and pushes those below.
    heights[-1] = min(heights[-1], 1.0)
    for at in range(len(heights) - 2, -1, -1):
        heights[at] = min(heights[at], heights[at + 1] - gap)
    for (x, y, words, colour), height in zip(ordered, heights, strict=True):
        axis.annotate(
            words,
            xy=(x, y),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            color=colour,
            fontweight="bold" if colour == OURS else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "alpha": 0.5,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110)
    pyplot.close(figure)

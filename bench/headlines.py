"""What a run comes to, in ratios: the first table of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.explanations import WHY_AHEAD
from bench.figures import Spread, spoken
from bench.tables import markdown, shown
from bench.view import View, rivals

FIGURES: Final = {
    "faster": "step_ms",
    "smaller": "disk_bytes",
    "opens faster": "new_ms",
    "loads faster": "load_ms",
}
MANY: Final = "many at once"


class Cell(NamedTuple):
    """A cell of the table: above 1 holdfast is ahead, below 1 the other."""

    ours: str
    other: str
    column: str
    ratio: Spread
    why: str


def list_headlines(view: View) -> Iterator[str]:
    """Each peer against ours."""
    rows = []
    for peer, ours in rivals():
        steps = view.common(ours.name, peer.name)
        if not steps:
            continue
        growth = [_ratio(view.ratio(peer.name, ours.name, figure)) for figure in FIGURES.values()]
        rows.append([ours.name, peer.name, f"{steps:,}", *growth, _throughput(view, ours.name, peer.name)])
    if not rows:
        yield from ("Nothing was compared with a peer.", "", *_floors(view))
        return
    yield (
        "How many times faster a step is, how many times fewer bytes it takes, how many times faster a new "
        "process opens the session and loads it, how many times faster an open store loads it, and how many "
        "times the steps a second with many sessions at once; at the most steps both reached. All are "
        "medians of ratios, each of one round in which both took their turns. Above 1 holdfast is ahead, "
        "**below 1 the other**."
    )
    yield ""
    yield from markdown(["holdfast", "other", "steps", *FIGURES, MANY], rows)
    yield ""
    yield from _list_reasons(view)
    yield from _floors(view)


def _list_reasons(view: View) -> Iterator[str]:
    behind = list_behind(view)
    if behind:
        yield from ("Where another one is ahead:", "")
        reasons: dict[str, list[str]] = {}
        for one in behind:
            reasons.setdefault(one.why, []).append(f"{one.other}, *{one.column}*, {shown(one.ratio)}")
        yield from (f"- {'; '.join(cells)}: {why or '**not explained**.'}" for why, cells in reasons.items())
        yield ""


def list_behind(view: View) -> list[Cell] | None:
    """The cells in which another one is ahead; None if nothing was compared."""
    found: list[Cell] = []
    compared = False
    for peer, ours in rivals():
        cells = {column: view.ratio(peer.name, ours.name, figure) for column, figure in FIGURES.items()}
        cells[MANY] = _many(view, ours.name, peer.name)[0]
        for column, ratio in cells.items():
            compared = compared or ratio is not None
            if ratio is not None and ratio.median < 1:
                why = WHY_AHEAD.get((peer.name, column), "")
                found.append(Cell(ours.name, peer.name, column, ratio, why))
    return found if compared else None


def _floors(view: View) -> Iterator[str]:
    """Against the same bytes with nothing around them, and against the plainest append of a peer."""
    rows = []
    for ours, other in (
        ("holdfast dir", "raw append"),
        ("holdfast SQLite", "raw SQLite"),
        ("holdfast SQLite", "OpenAI SQLiteSession"),
        ("holdfast PostgreSQL", "raw PostgreSQL"),
    ):
        found = view.in_turns(ours, other)
        if found is not None:
            rows.append([ours, other, shown(found)])
    if rows:
        yield "How many times as long a durable step takes, when both take steps in turns in one process:"
        yield ""
        yield from markdown(["holdfast", "beside", "times as long"], rows)


def _many(view: View, ours: str, peer: str) -> tuple[Spread | None, int]:
    """The ratio with the most sessions that both had, and how many those were."""
    for sessions in reversed(view.sessions()):
        ratio = view.rate_ratio(ours, peer, sessions)
        if ratio is not None:
            return ratio, sessions
    return None, 0


def _throughput(view: View, ours: str, peer: str) -> str:
    ratio, sessions = _many(view, ours, peer)
    return f"{_ratio(ratio)} ({sessions:,})" if ratio else "–"


def _ratio(found: Spread | None) -> str:
    if found is None:
        return "–"
    return spoken(found.median) if found.median >= 1 else f"**{spoken(found.median)}**"

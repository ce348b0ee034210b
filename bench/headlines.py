"""What a run comes to, in ratios: the first table of the page."""

from __future__ import annotations

from collections.abc import Iterator

from bench.tables import markdown, shown
from bench.verdicts import spoken
from bench.view import View, rivals


def list_headlines(view: View) -> Iterator[str]:
    """Each peer against ours: more than 1 is to holdfast's advantage, less to the peer's."""
    rows = []
    for peer, ours in rivals():
        steps = view.common(ours.name, peer.name)
        if not steps:
            continue
        growth = [
            _ratio(view.ratio(peer.name, ours.name, figure))
            for figure in ("total_s", "disk_bytes", "load_ms")
        ]
        rows.append([ours.name, peer.name, f"{steps:,}", *growth, _throughput(view, ours.name, peer.name)])
    if not rows:
        yield from ("Nothing was compared with a peer.", "", *_floors(view))
        return
    yield (
        "How many times faster, smaller, faster to load, and how many times the steps a second with many "
        "sessions at once, at the most steps both reached. Above 1 holdfast is ahead, **below 1 the other**."
    )
    yield ""
    columns = ["holdfast", "other", "steps", "faster", "smaller", "loads faster", "many at once"]
    yield from markdown(columns, rows)
    yield ""
    yield from _floors(view)


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
        yield "How many times as long a durable step takes, when both take steps in turns:"
        yield ""
        yield from markdown(["holdfast", "beside", "times as long"], rows)


def _throughput(view: View, ours: str, peer: str) -> str:
    both = [size for size in view.sessions() if view.rate(ours, size) and view.rate(peer, size)]
    if not both:
        return "–"
    mine, theirs = view.rate(ours, both[-1]), view.rate(peer, both[-1])
    assert mine is not None
    assert theirs is not None
    return f"{_ratio(mine.median / theirs.median)} ({both[-1]:,})"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return spoken(ratio) if ratio >= 1 else f"**{spoken(ratio)}**"

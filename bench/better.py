"""Where another one is better than holdfast. Found by comparing every figure, not by remembering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.figures import spoken
from bench.subjects.catalogue import Subject
from bench.view import View, rivals

MARGIN: Final = 1.05
"""Less than this is noise."""

_GROWTH: Final = {
    "step_ms": "takes a step {} times faster, over {:,} steps",
    "disk_bytes": "takes {} times fewer bytes after {:,} steps",
    "new_ms": "is opened and loaded by a new process {} times faster after {:,} steps",
    "load_ms": "loads the latest {} times faster from an open store after {:,} steps",
}


def list_better(view: View) -> list[str]:
    """A line each, with what has to be known to judge it."""
    lines = []
    for peer, ours in rivals():
        found = [
            *_in_growth(view, peer, ours),
            *_in_throughput(view, peer, ours),
            *_in_memory(view, peer, ours),
        ]
        if found:
            lines.append(f"**{peer.name}** ({peer.durability}), against {ours.name}: {'; '.join(found)}.")
    for one in view.results.startup:
        if not one.what.startswith("import") or "holdfast" in one.what:
            continue
        ratio = view.start_ratio("import holdfast, open_store, Agent", one.what)
        if ratio is not None and ratio.median > MARGIN:
            quicker = spoken(ratio.median)
            lines.append(
                f"**{one.what}** is {quicker} times as fast as importing what a holdfast agent needs."
            )
    return lines


def _in_growth(view: View, peer: Subject, ours: Subject) -> Iterator[str]:
    turns = view.in_turns(ours.name, peer.name)
    if turns is not None and turns.median > MARGIN:
        yield f"takes a step {spoken(turns.median)} times faster, when both take them in turns"
    steps = view.common(ours.name, peer.name)
    for figure, words in _GROWTH.items():
        ratio = view.ratio(ours.name, peer.name, figure)
        if ratio is not None and ratio.median > MARGIN:
            yield words.format(spoken(ratio.median), steps)


def _in_throughput(view: View, peer: Subject, ours: Subject) -> Iterator[str]:
    for sessions in view.sessions():
        ratio = view.rate_ratio(peer.name, ours.name, sessions)
        if ratio is not None and ratio.median > MARGIN:
            at_once = "one session" if sessions == 1 else f"{sessions:,} sessions at once"
            yield f"does {spoken(ratio.median)} times the steps with {at_once}"


def _in_memory(view: View, peer: Subject, ours: Subject) -> Iterator[str]:
    mine, theirs = view.memory(ours.name), view.memory(peer.name)
    if mine and theirs and theirs.median > 0 and mine.median / theirs.median > MARGIN:
        yield f"takes {spoken(mine.median / theirs.median)} times less memory for an open session"

"""The tables of the page, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bench.figures import Spread
from bench.subjects.catalogue import GROUPS, SUBJECTS, Subject
from bench.verdicts import spoken
from bench.view import View, counterpart


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table; the first column to the left, figures to the right."""
    figures = [all(_is_figure(row[at]) for row in rows) for at in range(len(columns))]
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---:' if figure else '---' for figure in figures)} |"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit() or cell in {"–", ""}


def shown(found: Spread | None, scale: float = 1.0) -> str:
    """A median with its spread."""
    if found is None:
        return "–"
    middle = spoken(found.median * scale)
    if found.runs == 1:
        return middle
    return f"{middle} ({spoken(found.low * scale)}–{spoken(found.high * scale)})"


def times(ratio: float | None) -> str:
    """A ratio."""
    return "–" if ratio is None else f"{spoken(ratio)} ×"


def growth_tables(view: View) -> Iterator[str]:
    """Time, then space, for each kind of subject."""
    marks = view.all_marks()
    named = [f"{mark:,}" for mark in marks]
    for group, words in GROUPS.items():
        subjects = view.subjects(group)
        if not subjects:
            continue
        yield from (f"### {group[0].upper()}{group[1:]}", "", words, "")
        yield from ("Milliseconds per step in the last 5 % of a session of so many steps:", "")
        yield from markdown(
            [
                "subject",
                *named,
                "first 5 %",
                "total s",
                "of holdfast",
                "exponent",
                "syncs/step",
                "durability",
            ],
            [_time_row(view, subject, marks) for subject in subjects],
        )
        yield from ("", "Megabytes on disk, and milliseconds to load the latest:", "")
        yield from markdown(
            ["subject", *named, "of holdfast", "exponent", "load ms", "of holdfast"],
            [_space_row(view, subject, marks) for subject in subjects],
        )
        yield ""
        yield from _stops(view, subjects)


def _time_row(view: View, subject: Subject, marks: Sequence[int]) -> list[str]:
    name, last = subject.name, max(view.marks(subject.name), default=0)
    ours = counterpart(subject)
    power, syncs = view.exponent(name, "total_s"), view.syncs(name)
    return [
        _name(subject),
        *(shown(view.at(name, mark, "last_ms")) for mark in marks),
        shown(view.at(name, last, "first_ms")),
        f"{shown(view.at(name, last, 'total_s'))} at {last:,}",
        _against(view, subject, ours, "total_s"),
        "–" if power is None else f"{power:.2f}",
        "–" if syncs is None else f"{syncs:.1f}",
        subject.durability,
    ]


def _space_row(view: View, subject: Subject, marks: Sequence[int]) -> list[str]:
    name, last = subject.name, max(view.marks(subject.name), default=0)
    ours = counterpart(subject)
    power = view.exponent(name, "disk_bytes")
    return [
        _name(subject),
        *(shown(view.at(name, mark, "disk_bytes"), 1e-6) for mark in marks),
        _against(view, subject, ours, "disk_bytes"),
        "–" if power is None else f"{power:.2f}",
        f"{shown(view.at(name, last, 'load_ms'))} at {last:,}",
        _against(view, subject, ours, "load_ms"),
    ]


def _name(subject: Subject) -> str:
    return f"**{subject.name}**" if subject.role == "holdfast" else subject.name


def _against(view: View, subject: Subject, ours: Subject | None, figure: str) -> str:
    """Times ours, at the most steps that both reached."""
    if ours is None or ours.name == subject.name:
        return "–"
    ratio = view.ratio(subject.name, ours.name, figure)
    return "–" if ratio is None else f"{times(ratio)} at {view.common(subject.name, ours.name):,}"


def _stops(view: View, subjects: Sequence[Subject]) -> Iterator[str]:
    stopped = [(one.name, view.reached(one.name).stop) for one in subjects]
    found = [f"- {name} stopped at step {stop.steps:,}: {stop.reason}." for name, stop in stopped if stop]
    yield from (*found, *([""] if found else []))


def throughput_table(view: View) -> Iterator[str]:
    """Sessions at once, side by side."""
    sizes = view.sessions()
    if not sizes:
        yield from ("Not in this run.", "")
        return
    measured = {one.subject for one in view.results.throughput}
    yield from ("Durable steps a second of all sessions together:", "")
    rows = []
    for subject in SUBJECTS:
        if subject.name not in measured:
            continue
        raw = next((one for one in SUBJECTS if one.role == "floor" and one.store == subject.store), None)
        most = max((size for size in sizes if view.rate(subject.name, size)), default=0)
        mine, floor = view.rate(subject.name, most), view.rate(raw.name, most) if raw and raw.many else None
        below = floor.median / mine.median if mine and floor and raw != subject else None
        rows.append(
            [
                _name(subject) + (", in batches" if subject.role == "floor" else ""),
                *(shown(view.rate(subject.name, size)) for size in sizes),
                f"{times(below)} at {most:,}" if below else "–",
            ]
        )
    yield from markdown(["subject", *(f"{size:,}" for size in sizes), "below raw rows"], rows)
    yield ""
    yield (
        "Raw rows are inserted in one transaction for as many steps as there are sessions: the limit for "
        "whoever shares commits. LangGraph's checkpointers write whole channels: the longer their sessions "
        "become while they are measured, the slower, with few sessions more than with many."
    )
    for one in sorted({(one.subject, one.processes) for one in view.results.throughput if one.processes > 1}):
        rate = view.rate(one[0], one[1], processes=one[1])
        yield from (
            "",
            f"{one[0]}, {one[1]} processes with a session each on one file: {shown(rate)} steps a second.",
        )
    yield ""


def dispatch_table(view: View) -> Iterator[str]:
    """Microseconds a call."""
    if not view.results.dispatch:
        yield from ("Not in this run.", "")
        return
    base, commits = view.dispatch("pydantic alone"), view.dispatch("two raw commits")
    rows = []
    for name in view.results.dispatch:
        found = view.dispatch(name)
        assert found is not None
        beyond = found.median - base.median if base and name.startswith(("pure", "read")) else None
        share = found.median / commits.median if commits and name.startswith(("mutate", "two")) else None
        rows.append([name, shown(found), "–" if beyond is None else spoken(beyond), times(share)])
    yield "Bodies that do nothing, in a run on SQLite; microseconds a call:"
    yield ""
    yield from (*markdown(["call", "µs", "beyond pydantic", "of the raw commits"], rows), "")


def long_tables(view: View) -> Iterator[str]:
    """Opening against decoding, and the steps by tenths."""
    found = view.results.long_sessions
    if not found:
        yield from ("Not in this run.", "")
        return
    rows, tenths = [], []
    for subject, steps in dict.fromkeys((one.subject, one.steps) for one in found):
        rounds = view.long(subject, steps)
        opened, plain, typed = (
            Spread.of(statistics.median(figures) for figures in column)
            for column in zip(*((one.open_ms, one.json_ms, one.typed_ms) for one in rounds), strict=True)
        )
        rows.append(
            [
                subject,
                f"{steps:,}",
                shown(opened),
                shown(typed),
                times(opened.median / typed.median),
                shown(plain),
                times(opened.median / plain.median),
            ]
        )
        middles = [
            statistics.median(column) for column in zip(*(one.tenths_ms for one in rounds), strict=True)
        ]
        fresh = statistics.median(one.old_new for one in rounds)
        tenths.append([subject, f"{steps:,}", *(f"{one:.2f}" for one in middles), times(fresh)])
    yield "Milliseconds to open store and session anew and to decode every message, against reading the same"
    yield from ("messages from one JSON document, into typed messages (msgspec) and into dicts (json):", "")
    yield from markdown(
        ["subject", "steps", "open", "typed", "open / typed", "dicts", "open / dicts"],
        sorted(rows, key=lambda row: row[0]),
    )
    yield from (
        "",
        "Milliseconds per step by tenths of the session's life, and a step at its end against one of a fresh",
    )
    yield from ("session at the same moment:", "")
    columns = ["subject", "steps", *(f"{number}." for number in range(1, 11)), "end / fresh"]
    yield from (*markdown(columns, sorted(tenths, key=lambda row: row[0])), "")


def startup_table(view: View) -> Iterator[str]:
    """Interpreters, from start to end."""
    bare = view.started("python")
    if bare is None:
        yield from ("Not in this run.", "")
        return
    rows = []
    for one in view.results.startup:
        wall = view.started(one.what)
        assert wall is not None
        more = wall.median - bare.median
        rows.append([one.what, shown(wall), shown(Spread.of(one.cpu_ms)), f"{more:.0f}" if more > 0 else "0"])
    yield from ("A whole interpreter, from start to end, in milliseconds:", "")
    yield from (*markdown(["what", "passed", "processors", "beyond bare Python"], rows), "")


def memory_table(view: View) -> Iterator[str]:
    """Per thousand."""
    names = list(dict.fromkeys(one.subject for one in view.results.memory))
    base = view.memory("holdfast SQLite")
    rows = []
    for name in names:
        found = view.memory(name)
        ratio = found.median / base.median if found and base and name != "holdfast SQLite" else None
        rows.append([name, shown(found, 1e-3), times(ratio)])
    if not rows:
        yield from ("Not in this run.", "")
        return
    yield from ("Megabytes of memory for a thousand open sessions, each with one step:", "")
    yield from (*markdown(["subject", "MB", "of holdfast SQLite"], rows), "")


def fleet_table(view: View) -> Iterator[str]:
    """How long work waited."""
    if not view.results.fleet:
        yield from ("Not in this run.", "")
        return
    figures: Sequence[tuple[str, Callable[[list[float]], float]]] = (
        ("p50", statistics.median),
        ("p99", lambda waits: statistics.quantiles(waits, n=100, method="inclusive")[98]),
        ("longest", max),
    )
    rows = [
        [
            what,
            one.store,
            str(len(waits)),
            *(spoken(of(waits if len(waits) > 1 else waits * 2)) for _, of in figures),
        ]
        for one in view.results.fleet
        for what, waits in one.waits_ms.items()
    ]
    yield from ("Milliseconds until somebody works on it:", "")
    yield from (*markdown(["what", "store", "times", *(name for name, _ in figures)], rows), "")

"""The tables of the page, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bench.figures import Spread, spoken
from bench.subjects.catalogue import GROUPS, MESSAGES, SUBJECTS, Subject
from bench.texts import CHARACTERS
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
    """A median with its quartiles."""
    if found is None:
        return "–"
    middle = spoken(found.median * scale)
    if found.rounds == 1:
        return middle
    return f"{middle} ({spoken(found.low * scale)}–{spoken(found.high * scale)})"


def times(ratio: Spread | float | None) -> str:
    """A ratio."""
    if ratio is None:
        return "–"
    return f"{spoken(ratio.median if isinstance(ratio, Spread) else ratio)} ×"


def growth_tables(view: View) -> Iterator[str]:
    """Time, space and loading, for each kind of subject."""
    for group, words in GROUPS.items():
        subjects = view.subjects(group)
        if not subjects:
            continue
        marks = view.group_marks(group)
        named = [f"{mark:,}" for mark in marks]
        yield from (f"### {group[0].upper()}{group[1:]}", "", words, "")
        yield from ("Milliseconds per step in the last 5 % of a session of so many steps:", "")
        ends = ["first 5 %", "total s", "of holdfast", "exponent", "syncs/step", "durability"]
        rows = [_time_row(view, subject, marks) for subject in subjects]
        yield from (*markdown(["subject", *named, *ends], rows), "")
        yield from ("Megabytes on disk, and for each byte of the messages at the end:", "")
        rows = [_space_row(view, subject, marks) for subject in subjects]
        yield from (*markdown(["subject", *named, "per byte", "of holdfast", "exponent"], rows), "")
        yield from _loading_table(view, subjects)
        yield from _stops(view, subjects)


def _time_row(view: View, subject: Subject, marks: Sequence[int]) -> list[str]:
    name, last = subject.name, max(view.marks(subject.name), default=0)
    power, syncs = view.exponent(name, "total_s"), view.syncs(name)
    return [
        _name(subject),
        *(shown(view.at(name, mark, "last_ms")) for mark in marks),
        shown(view.at(name, last, "first_ms")),
        f"{shown(view.at(name, last, 'total_s'))} at {last:,}",
        _against(view, subject, "step_ms"),
        "–" if power is None else f"{power:.2f}",
        "–" if syncs is None else f"{syncs:.1f}",
        subject.durability,
    ]


def _space_row(view: View, subject: Subject, marks: Sequence[int]) -> list[str]:
    name, last = subject.name, max(view.marks(subject.name), default=0)
    power = view.exponent(name, "disk_bytes")
    return [
        _name(subject),
        *(shown(view.at(name, mark, "disk_bytes"), 1e-6) for mark in marks),
        f"{shown(view.at(name, last, 'disk_bytes'), 1 / (2 * CHARACTERS * last))} at {last:,}"
        if last
        else "–",
        _against(view, subject, "disk_bytes"),
        "–" if power is None else f"{power:.2f}",
    ]


def _loading_table(view: View, subjects: Sequence[Subject]) -> Iterator[str]:
    rows = []
    for subject in subjects:
        for steps in view.marks(subject.name) if subject.store else ():
            figures = ("new_open_ms", "new_load_ms", "new_ms", "new_peek_ms", "load_ms", "peek_ms")
            found = {figure: view.at(subject.name, steps, figure) for figure in figures}
            ours = counterpart(subject)
            mine = ours is None or ours.name == subject.name
            ratios = [
                None if mine or ours is None else view.ratio(subject.name, ours.name, figure, steps)
                for figure in ("new_ms", "load_ms")
            ]
            rows.append(
                [
                    _name(subject),
                    f"{steps:,}",
                    *(shown(found[figure]) for figure in ("new_open_ms", "new_load_ms", "new_ms")),
                    times(ratios[0]),
                    shown(found["new_peek_ms"]),
                    shown(found["load_ms"]),
                    times(ratios[1]),
                    shown(found["peek_ms"]),
                ]
            )
    if not rows:
        return
    yield "Milliseconds to load the latest. *New*: in another process, which opens the store anew and loads"
    yield "from it for the first time. *Open*: from the store that is open. *State only*: opened, and no"
    yield from ("message looked at.", "")
    new = ["new: open", "new: load", "new: both", "of holdfast", "new: state only"]
    columns = ["subject", "steps", *new, "open: load", "of holdfast", "open: state only"]
    yield from (*markdown(columns, rows), "")


def _name(subject: Subject) -> str:
    return f"**{subject.name}**" if subject.role == "holdfast" else subject.name


def _against(view: View, subject: Subject, figure: str) -> str:
    """Times ours, at the most steps that both reached."""
    ours = counterpart(subject)
    if ours is None or ours.name == subject.name:
        return "–"
    ratio = view.ratio(subject.name, ours.name, figure)
    return "–" if ratio is None else f"{times(ratio)} at {view.common(subject.name, ours.name):,}"


def _stops(view: View, subjects: Sequence[Subject]) -> Iterator[str]:
    stopped = [(one.name, view.stop(one.name)) for one in subjects]
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
        below = view.rate_ratio(raw.name, subject.name, most) if raw and raw != subject else None
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
        "those that share commits. LangGraph's checkpointers write whole channels: the longer their sessions "
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
    rows = []
    for name in view.results.dispatch:
        beyond = [
            view.dispatch_beyond(name, "pydantic alone", figure)
            if name.startswith(("pure", "read"))
            else None
            for figure in ("passed_us", "worked_us")
        ]
        share = view.dispatch_ratio(name, "two raw commits") if name.startswith(("mutate", "two")) else None
        rows.append(
            [
                name,
                shown(view.dispatch(name)),
                shown(view.dispatch(name, "worked_us")),
                *map(shown, beyond),
                times(share),
            ]
        )
    yield "Bodies that do nothing, in a run on SQLite; microseconds a call, passed and of the processors:"
    yield ""
    columns = ["call", "passed", "processors", "passed beyond pydantic", "processors beyond pydantic"]
    yield from (*markdown([*columns, "of the raw commits"], rows), "")


def proxy_table(view: View) -> Iterator[str]:
    """Microseconds a request."""
    if not view.results.proxy:
        yield from ("Not in this run.", "")
        return
    rows = []
    for what in ("no tool", "a tool that reads", "a tool that reads 100 kB", "a tool that acts"):
        direct, proxied = f"{what}, directly", f"{what}, through the proxy"
        rows.append(
            [
                what,
                shown(view.request(direct)),
                shown(view.request(proxied)),
                shown(view.request_beyond(proxied, direct)),
            ]
        )
    yield "Requests to an MCP server on stdio that does nothing; the ledger is in SQLite; microseconds each:"
    yield ""
    yield from (*markdown(["request", "directly", "through the proxy", "beyond"], rows), "")
    yield f"Two raw commits of a small call's bytes, beside it: {shown(view.request('two raw commits'))}."
    yield ""


def viewer_table(view: View) -> Iterator[str]:
    """Milliseconds a page, megabytes, and microseconds a step."""
    found = {what: Spread.of(figures) for what, figures in view.results.viewer.items() if figures}
    if not found:
        yield from ("Not in this run.", "")
        return
    rows = [
        [what, shown(found.get(f"{what}, first")), shown(found.get(f"{what}, again"))]
        for what in ("sessions", "needs you", "10,000 steps")
    ]
    yield "`holdfast ui` over 10,000 sessions in SQLite, one of 10,000 steps; milliseconds to the last byte:"
    yield ""
    yield from (*markdown(["page", "first", "again"], rows), "")
    yield (
        f"Its process needs {shown(found.get('memory, started'))} MB when it starts, and at its peak "
        f"{shown(found.get('memory, after'))} MB for these pages. A step of a process that writes takes "
        f"{shown(found.get('a step, alone'))} µs, and {shown(found.get('a step, beside pages'))} µs while "
        "two pages are open."
    )
    yield ""


def long_table(view: View) -> Iterator[str]:
    """Steps by tenths of the longest sessions."""
    steps = max(view.group_marks(MESSAGES), default=0)
    rows = []
    for subject in view.subjects(MESSAGES):
        tenths = view.tenths(subject.name, steps)
        if tenths:
            floor = next(one for one in SUBJECTS if one.role == "floor" and one.store == subject.store)
            drift = None if floor == subject else view.drift(subject.name, floor.name, steps)
            rows.append([_name(subject), *(f"{one:.2f}" for one in tenths), times(drift)])
    if not rows:
        yield from ("Not in this run.", "")
        return
    yield f"Milliseconds per step by tenths of a session of {steps:,} steps; and the last tenth against the"
    yield from ("first, each as a multiple of the floor's steps in the same rounds:", "")
    columns = ["subject", *(f"{number}." for number in range(1, 11)), "last / first"]
    yield from (*markdown(columns, rows), "")


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
    yield from ("Milliseconds until a worker works on it:", "")
    yield from (*markdown(["what", "store", "times", *(name for name, _ in figures)], rows), "")

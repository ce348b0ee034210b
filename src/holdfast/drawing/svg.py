"""Draw a session as SVG: an overview in lanes, and steps one below the other.

Widths and places across are in percent, so that a drawing fills its page at any width while texts keep their
size. Heights are in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from ..formatting import count, shorten, span, usd
from ..limits import DRAWN_DELEGATE_ROWS, DRAWN_LANES
from .markup import Html, el, join
from .model import Bar, Drawing, Event, Gap, Item, Mark, Row, Step, TimeScale, find_span, make_scale

_ROW: Final = 20
_BAR: Final = 10
_AXIS: Final = 24
_MONEY: Final = 46
_LABEL_PC: Final = 28.0
_OVERVIEW_LABEL_PC: Final = 15.0
_TICKS: Final = 6
_THINNEST: Final = 1 / 1500
"""Bars that are closer to each other than this part of the width are drawn as one in an overview."""
_INDENT: Final = 14
_LABEL_CHARS: Final = 120
_RIGHT_TEXT_CHARS: Final = 130
_LEFT_TEXT_CHARS: Final = 12
_GAP_TEXT_CHARS: Final = 64
"""What fits on one line of a drawing in a small window."""
_CHAR_WIDTH: Final = 1 / 54
"""Of a text beside bars, as a part of the width that a small window leaves for them."""

Link: TypeAlias = Callable[[str, str], str | None]
"""The address of what a row is about: of a session, and of `#entry-7` or `#effect-7` in it (empty: all of
it); None for no link."""


class Region(NamedTuple):
    """A part of an overview that leads somewhere. The one that is `here` is marked."""

    start: datetime
    end: datetime
    link: str
    title: str
    here: bool = False


_STATUS_CLASSES: Final = {
    "ok": "",
    "failed": " hf-is-failed",
    "doubt": " hf-is-doubt",
    "cut": " hf-is-cut",
    "running": " hf-is-running",
    "waiting": " hf-is-running",
}


def _pc(place: float) -> str:
    return f"{100 * place:.3f}".rstrip("0").rstrip(".") + "%"


def _svg(height: int, *children: Html, label: str, class_: str) -> Html:
    return el(
        "svg",
        el("title", label),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        width="100%",
        height=height,
        # Not `img`: there are links in it.
        role="group",
        aria_label=label,
        class_=class_,
    )


def _column(y: int, height: int, label_pc: float, *children: Html) -> Html:
    """The part of a drawing in which bars are; what reaches beyond it is cut off."""
    return el(
        "svg",
        *children,
        x=f"{label_pc:g}%",
        y=y,
        width=f"{99 - label_pc:g}%",
        height=height,
        class_="hf-chart",
        overflow="visible",
    )


def _label(y: int, label_pc: float, *children: Html) -> Html:
    """The part left of it; texts are cut off at its end."""
    return el("svg", *children, y=y, width=f"{label_pc - 1:g}%", height=_ROW)


def _text(said: str, x: str, y: float, class_: str = "", anchor: str | None = None) -> Html:
    return el("text", said, x=x, y=y, class_=class_ or None, text_anchor=anchor)


# -- the axis, gaps and processes -----------------------------------------------------------------------


def _draw_axis(scale: TimeScale, since_s: float, height: int) -> tuple[list[Html], list[Html]]:
    """What stands above the bars, and the lines behind them. `since_s` is where this part begins."""
    above: list[Html] = []
    behind: list[Html] = []
    taken: list[tuple[float, float]] = []

    def put(place: float, said: str, class_: str, room: float) -> None:
        anchor = "start" if place < room else "end" if place > 1 - room else "middle"
        left = {"start": place, "end": place - 2 * room, "middle": place - room}[anchor]
        if any(a < left + 2 * room and b > left for a, b in taken):
            return
        taken.append((left, left + 2 * room))
        above.append(_text(said, _pc(place), _AXIS / 2, class_, anchor))

    for one in scale.stretches:
        if one.shortened:
            behind.append(
                el("rect", x=_pc(one.left), y=_AXIS, width=_pc(one.width), height=height, class_="hf-break")
            )
            edges = (one.left, one.left + one.width)
            behind += [_line(edge, _AXIS, edge, height, "hf-break-edge") for edge in edges]
    for one in sorted((one for one in scale.stretches if one.shortened), key=lambda one: one.start - one.end):
        if one.end - one.start >= 0.001:
            put(one.left + one.width / 2, span(one.end - one.start), "dim", 0.08)
    for place, at_s in scale.list_ticks(_TICKS):
        behind.append(_line(place, _AXIS - 4, place, height, "hf-grid"))
        said = _tick_text(since_s + at_s)
        put(place, said, "dim", 0.02 if said == "0" else 0.08)
    return above, behind


def _tick_text(since_s: float) -> str:
    """A time on the axis, without parts that are zero."""
    if since_s < 0.0005:
        return "0"
    if since_s < 1:
        return f"+{since_s * 1000:.0f} ms"
    if since_s < 60:
        return f"+{since_s:.1f}".removesuffix(".0") + " s"
    minutes, seconds = divmod(round(since_s), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours:,} h"] if hours else []
    parts += [f"{minutes} min"] if minutes else []
    parts += [f"{seconds} s"] if seconds and not hours else []
    return f"+{' '.join(parts)}"


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    return el("line", x1=_pc(x1), y1=y1, x2=_pc(x2), y2=y2, class_=class_)


def _draw_gaps(drawing: Drawing, scale: TimeScale, start: datetime, end: datetime, height: int) -> list[Html]:
    found: list[Html] = []
    for gap in drawing.gaps:
        if gap.at > end or (gap.until or gap.at) < start:
            continue
        left = scale.place(gap.at)
        right = 1.0 if gap.until is None else scale.place(gap.until)
        found.append(
            el(
                "rect",
                el("title", gap.text),
                x=_pc(left),
                y=_AXIS,
                width=_pc(max(right - left, 0.002)),
                height=height - _AXIS,
                class_="hf-gap",
            )
        )
        found += [_line(edge, _AXIS, edge, height, "hf-gap-edge") for edge in (left, right)]
    return found


def _draw_processes(drawing: Drawing, scale: TimeScale, start: datetime, end: datetime, y: int) -> list[Html]:
    """Which process held the session when."""
    names: dict[str, str] = {}
    found: list[Html] = []
    last = -1.0
    for period in drawing.periods:
        until = period.until or drawing.end
        names.setdefault(period.holder, "ab"[len(names) % 2])
        if until < start or period.since > end:
            continue
        left, right = scale.place(max(period.since, start)), scale.place(min(until, end))
        if right <= last:
            continue
        last = right if right - left < _THINNEST else last
        how = {"lost": "killed or cut off", "released": "released it", "held": "holds it"}[period.ended]
        about = f"{period.name}: {how}, fence {period.fence}"
        found.append(
            el(
                "svg",
                el("title", about),
                el("rect", width="100%", height=_ROW - 4, rx=3, class_=f"hf-process-{names[period.holder]}"),
                _text(period.name, "5", (_ROW - 4) / 2, "dim"),
                x=_pc(left),
                y=y + 2,
                width=_pc(max(right - left, 0.002)),
                height=_ROW - 4,
            )
        )
    return found


# -- bars and marks -------------------------------------------------------------------------------------


def _draw_bar(bar: Bar, scale: TimeScale, y: float, height: float = _BAR) -> Html:
    left, right = scale.place(bar.start), scale.place(bar.end)
    thin = bar.kind in ("wait", "doubt")
    inset = height / 4 if thin else 0
    status = "" if bar.kind == "doubt" else _STATUS_CLASSES[bar.status]
    about = f"{span(bar.took_s)} {'' if bar.status == 'ok' else bar.status}".rstrip()
    return el(
        "rect",
        el("title", f"{about}\n{bar.note}".rstrip()),
        x=_pc(left),
        y=y + inset,
        width=_pc(max(right - left, 0.0015)),
        height=height - 2 * inset,
        rx=2,
        class_=f"hf-bar hf-{bar.kind}{status}",
    )


def _draw_mark(mark: Mark, scale: TimeScale, y: float) -> Html:
    diamond = el("path", el("title", mark.text), d="M0-6 6 0 0 6-6 0Z", class_=f"hf-mark hf-{mark.kind}")
    return el("svg", diamond, x=_pc(scale.place(mark.at)), y=y, overflow="visible")


class _Extent(Struct):
    """What a row has to say beside its bars, and where."""

    said: str
    class_: str
    left: float
    right: float
    last: float = 0.0
    """How wide the bar at its right end is, if a text can be read on it."""

    def draw(self, y: float) -> Html:
        room = _CHAR_WIDTH * len(self.said)
        if self.right + room < 1 or (1 - self.right >= self.left and self.right < 0.75):
            return _svg_text(self.said[:_RIGHT_TEXT_CHARS], self.right, 9, y, self.class_, "start")
        said = shorten(self.said, max(_LEFT_TEXT_CHARS, int(self.left / _CHAR_WIDTH)))
        if self.left > 0.25:
            return _svg_text(said, self.left, -9, y, self.class_, "end")
        class_ = "hf-on-bar" if self.last > room else f"{self.class_} halo"
        return _svg_text(said, min(self.right, 0.99), -6, y, class_, "end")


def _svg_text(said: str, place: float, dx: int, y: float, class_: str, anchor: str) -> Html:
    return el("text", said, x=_pc(place), y=y, dx=dx, class_=class_, text_anchor=anchor)


def _draw_row(row: Row, scale: TimeScale, y: float) -> list[Html]:
    """The bars and marks of a row, and a text beside them."""
    middle = y + _ROW / 2
    found = [_draw_bar(bar, scale, middle - _BAR / 2) for bar in row.bars]
    found += [_draw_mark(mark, scale, middle) for mark in row.marks]
    places = [scale.place(at) for bar in row.bars for at in (bar.start, bar.end)]
    places += [scale.place(mark.at) for mark in row.marks]
    working = [bar for bar in row.bars if bar.kind not in ("wait", "doubt")]
    words = [span(working[-1].took_s)] if working else []
    if working and working[-1].status in ("failed", "cut", "running"):
        words.append(working[-1].status)
    words += [mark.text for mark in row.marks]
    if places and words:
        kind = row.marks[-1].kind if row.marks else "plain"
        class_ = "dim" if kind == "plain" else f"hf-text-{kind}"
        if not row.marks and working and working[-1].status == "failed":
            class_ = "hf-text-bad"
        last = [
            scale.place(bar.end) - scale.place(bar.start)
            for bar in working
            if bar.status in ("ok", "failed", "doubt") and scale.place(bar.end) == max(places)
        ]
        extent = _Extent(" · ".join(words), class_, min(places), max(places), max(last, default=0.0))
        found.append(extent.draw(middle))
    return found


def _draw_money(drawing: Drawing, scale: TimeScale, start: datetime, end: datetime) -> tuple[Html, list[str]]:
    """The money (without any: the tokens) spent so far, as an area, and what is said beside it."""
    spent = [one for one in drawing.spent if one.at <= end]
    before = [one for one in spent if one.at < start]
    inside = [one for one in spent if one.at >= start]
    last = spent[-1] if spent else None
    if last is None:
        return join(), []
    in_usd = last.usd > 0
    amounts = [((one.usd if in_usd else float(one.tokens)), one.at) for one in inside]
    first = (before[-1].usd if in_usd else float(before[-1].tokens)) if before else 0.0
    top = last.usd if in_usd else float(last.tokens)
    cap = drawing.cap_usd if in_usd and drawing.cap_usd and drawing.cap_usd <= 3 * top else None
    top = max(top, cap or 0.0) or 1.0
    points = [(0.0, first)]
    for amount, at in amounts:
        place = scale.place(at)
        if len(points) > 1 and place - points[-1][0] < _THINNEST:
            points[-1] = (points[-1][0], amount)
        else:
            points.append((place, amount))

    def height_of(amount: float) -> float:
        return 97 - 90 * amount / top

    path = [f"M0 100V{height_of(points[0][1]):.1f}"]
    path += [f"H{1000 * place:.1f}V{height_of(amount):.1f}" for place, amount in points[1:]]
    area = el("path", d="".join([*path, "H1000V100Z"]), class_="hf-money")
    parts = [area]
    if cap is not None:
        line = height_of(cap)
        effect = "non-scaling-stroke"
        parts.append(el("line", x1=0, x2=1000, y1=line, y2=line, class_="hf-cap", vector_effect=effect))
    drawn = el("svg", *parts, width="100%", height="100%", viewBox="0 0 1000 100", preserveAspectRatio="none")
    said = [usd(last.usd) if in_usd else count(last.tokens, "token")]
    said += [f"of {usd(cap)}"] if cap is not None else []
    return drawn, said


# -- the overview ---------------------------------------------------------------------------------------


class OverviewDrawing(Struct, frozen=True):
    """All of a session, drawn; what leads to parts of it is drawn into it for each page."""

    label: str
    height: int
    scale: TimeScale
    labels: Html
    inside: Html

    def draw(self, regions: Sequence[Region] = ()) -> Html:
        """The drawing, with links to parts of it."""
        places = [_draw_region(one, self.scale, self.height) for one in regions]
        column = _column(0, self.height, _OVERVIEW_LABEL_PC, self.inside, *places)
        return _svg(self.height + 2, self.labels, column, label=self.label, class_="hf-overview")


def draw_overview(drawing: Drawing) -> Html:
    """All of a session in a few lanes, however long it is."""
    return lay_out_overview(drawing).draw()


def lay_out_overview(drawing: Drawing) -> OverviewDrawing:
    """All of a session in a few lanes: processes, model, tools side by side, waits, money.

    However long it is, the drawing is small: what lies closer together than can be seen is drawn as one.
    """
    start, end = drawing.start, drawing.end
    scale = make_scale(drawing, drawing.items, start, end)
    lanes = list(_list_lanes(drawing, scale))
    y = _AXIS
    labels: list[Html] = []
    inside: list[Html] = []
    if drawing.periods:
        labels.append(_label(y, _OVERVIEW_LABEL_PC, _text("processes", "0", _ROW / 2, "dim")))
        inside += _draw_processes(drawing, scale, start, end, y)
        y += _ROW
    for name, bars, marks in lanes:
        labels.append(_label(y, _OVERVIEW_LABEL_PC, _text(name, "0", _ROW / 2)))
        inside += [_draw_bar(bar, scale, y + 4, _ROW - 8) for bar in bars]
        inside += [_draw_mark(mark, scale, y + _ROW / 2) for mark in marks]
        y += _ROW
    inside += _draw_versions(drawing, scale, y)
    if drawing.steps:
        labels.append(_label(y, _OVERVIEW_LABEL_PC, _text("versions", "0", _ROW / 2, "dim")))
        y += _ROW
    money, said = _draw_money(drawing, scale, start, end)
    if said:
        for line, words in enumerate(said):
            labels.append(_label(y + 3 + 16 * line, _OVERVIEW_LABEL_PC, _text(words, "0", _ROW / 2, "dim")))
        inside.append(el("svg", money, y=y + 2, width="100%", height=_MONEY - 4))
        y += _MONEY
    above, behind = _draw_axis(scale, 0.0, y)
    gaps = _draw_gaps(drawing, scale, start, end, y)
    column = join(*behind, *gaps, *above, *inside)
    return OverviewDrawing(f"timeline of {drawing.session}", y, scale, join(*labels), column)


def _draw_region(one: Region, scale: TimeScale, height: int) -> Html:
    """A link over a part of an overview."""
    left, right = scale.place(one.start), scale.place(one.end)
    return el(
        "a",
        el(
            "rect",
            el("title", one.title),
            x=_pc(left),
            y=_AXIS,
            width=_pc(max(right - left, 0.003)),
            height=height - _AXIS,
            class_="hf-region hf-here" if one.here else "hf-region",
        ),
        href=one.link,
        aria_label=one.title,
        # The pages that it leads to can be reached without it.
        tabindex="-1",
    )


def _list_lanes(drawing: Drawing, scale: TimeScale) -> Iterator[tuple[str, list[Bar], list[Mark]]]:
    """The lanes: name, bars and marks."""
    bars = sorted(drawing.iter_bars(), key=lambda bar: bar.start)
    by_kind: dict[str, list[Bar]] = {"node": [], "model": [], "tool": [], "wait": []}
    for bar in bars:
        by_kind["tool" if bar.kind == "delegate" else "wait" if bar.kind == "doubt" else bar.kind].append(bar)
    for kind in ("node", "model"):
        if by_kind[kind]:
            yield "nodes" if kind == "node" else kind, _thin_out(by_kind[kind], scale), []
    for number, lane in enumerate(_side_by_side(by_kind["tool"])):
        yield "tools" if number == 0 else "", _thin_out(lane, scale), []
    marks = [
        mark for step in drawing.steps for row in step.rows for mark in row.marks if mark.kind != "plain"
    ]
    if by_kind["wait"] or marks:
        places: set[int] = set()
        seen: list[Mark] = []
        for mark in sorted(marks, key=lambda mark: mark.at):
            place = round(scale.place(mark.at) * 200)
            if place not in places:
                places.add(place)
                seen.append(mark)
        yield "waits", _thin_out(by_kind["wait"], scale), seen


def _side_by_side(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Bars in lanes, so that those at the same time are beside each other; the last lane has what is left."""
    lanes: list[list[Bar]] = []
    for bar in bars:
        free = next((lane for lane in lanes if lane[-1].end <= bar.start), None)
        if free is None and len(lanes) < DRAWN_LANES:
            lanes.append([bar])
        else:
            (free or lanes[-1]).append(bar)
    return lanes


def _thin_out(bars: Sequence[Bar], scale: TimeScale) -> list[Bar]:
    """The bars, with those made one that cannot be told apart; what failed stays to be seen."""
    found: list[Bar] = []
    right = -1.0
    for bar in bars:
        left = scale.place(bar.start)
        last = found[-1] if found else None
        if (
            last is not None
            and left - right < _THINNEST
            and last.status == bar.status
            and last.kind == bar.kind
        ):
            found[-1] = Bar(
                kind=last.kind,
                start=last.start,
                end=max(last.end, bar.end),
                status=last.status,
                note="several",
            )
        else:
            found.append(bar)
        right = max(right, scale.place(found[-1].end))
    return found


def _iter_rewinds(drawing: Drawing) -> Iterator[Event]:
    return (item for item in drawing.items if isinstance(item, Event) and item.to is not None)


def _draw_versions(drawing: Drawing, scale: TimeScale, y: int) -> list[Html]:
    """Checkpoints as ticks, rewinds as arrows back."""
    found: list[Html] = []
    last = -1.0
    for step in drawing.steps:
        if step.checkpoint_at is not None:
            place = scale.place(step.checkpoint_at)
            if place - last >= 1 / 300:
                found.append(_line(place, y + 5, place, y + _ROW - 5, "hf-checkpoint"))
                last = place
    for event in list(_iter_rewinds(drawing))[-100:]:
        found += _draw_arrow(event, scale, y + _ROW / 2)
    return found


def _draw_arrow(event: Event, scale: TimeScale, y: float) -> list[Html]:
    """From a rewind back to what it went back to."""
    assert event.to is not None
    right, left = scale.place(event.at), scale.place(event.to)
    head = el("path", d="M0 0 9-5V5Z", class_="hf-rewind-head")
    return [
        el("g", el("title", event.text), _line(left, y, right, y, "hf-rewind")),
        el("svg", head, x=_pc(left), y=y, overflow="visible"),
    ]


# -- steps ----------------------------------------------------------------------------------------------


class _Sheet:
    """The rows of a drawing of steps, from the top down."""

    def __init__(self, drawing: Drawing, scale: TimeScale, link: Link) -> None:
        self.drawing, self.scale, self._link = drawing, scale, link
        self.y = _AXIS
        self.under: list[Html] = []
        self.labels: list[Html] = []
        self.inside: list[Html] = []
        """What is in the column of the bars."""
        self.over: list[Html] = []

    def add_step(self, step: Step) -> None:
        """A step: a heading, its model, its calls."""
        pale = " hf-pale" if step.left_behind else ""
        self.under.append(el("rect", y=self.y, width="100%", height=_ROW, class_="hf-band"))
        title = f"step {step.number}{', continued' if step.continued else ''}"
        if step.left_behind:
            title += ", left behind"
        bars = [bar for row in step.rows for bar in row.bars if bar.kind != "doubt"]
        took = [span((max(b.end for b in bars) - min(b.start for b in bars)).total_seconds())] if bars else []
        took += [usd(step.usd)] if step.usd else []
        took += [count(step.tokens, "token")] if step.tokens else []
        took += [f"version {step.version}"] if step.version is not None else []
        heading = [
            el("tspan", title, class_="strong"),
            " ",
            el("tspan", " · ".join(took), dx=6, class_="dim"),
        ]
        self.over.append(el("text", *heading, x="6", y=self.y + _ROW / 2, class_=f"hf-step{pale}"))
        self.y += _ROW
        for row in step.rows:
            self.add_row(row, pale=pale)
        self.y += 4

    def add_row(self, row: Row, *, of: str = "", depth: int = 0, pale: str = "") -> None:
        """A row, and below it the rows of its delegate. `of`: the session, if it is not the drawn one."""
        label = [_tspan(row.label, "mono")]
        if row.detail:
            is_call = row.kind == "tool"
            detail = f"({row.detail})" if is_call else row.detail
            label.append(_tspan(detail, "mono dim", dx=None if is_call else 7))
        said = el("text", *label, x=18 + depth * _INDENT, y=_ROW / 2)
        said = join(el("title", f"{row.label} {row.detail}"[:400]), said)
        inside = row.inside
        about = (of or self.drawing.session, row.link) if inside is None else (inside.session, "")
        if (row.link or inside is not None) and (address := self._link(*about)) is not None:
            said = el("a", said, href=address)
        self.labels.append(_label(self.y, _LABEL_PC, said))
        drawn = _draw_row(row, self.scale, self.y)
        self.inside += [el("g", *drawn, class_=f"hf-row{pale}")]
        self.y += _ROW
        if inside is not None:
            below = [one for step in inside.steps for one in step.rows]
            for one in below[:DRAWN_DELEGATE_ROWS]:
                self.add_row(one, of=inside.session, depth=depth + 1, pale=pale)
            if len(below) > DRAWN_DELEGATE_ROWS:
                more = f"and {len(below) - DRAWN_DELEGATE_ROWS:,} more rows in {inside.session}"
                self.labels.append(_text(more, str(18 + (depth + 1) * _INDENT), self.y + _ROW / 2, "dim"))
                self.y += _ROW

    def add_event(self, event: Event) -> None:
        """A message, a rewind, the end of a run: a dot, and what it says."""
        place, middle = self.scale.place(event.at), self.y + _ROW / 2
        word, _, rest = event.text.partition(": ")
        if event.kind != "message":
            word, rest = {"rewind": "rewind", "failed": "run", "waits": "run"}.get(event.kind, "session"), ""
        self.labels.append(_text(word, "6", middle, "strong"))
        if event.to is not None:
            self.inside += _draw_arrow(event, self.scale, middle)
            place = max(place, self.scale.place(event.to))
        kind = {"failed": "bad", "waits": "open", "rewind": "plain"}.get(event.kind, "plain")
        dot = el("circle", el("title", event.text), cx=_pc(place), cy=middle, r=3.5, class_=f"hf-{kind}")
        class_ = "hf-text-bad" if event.kind == "failed" else ""
        left = place if event.to is None else self.scale.place(event.to)
        self.inside += [dot, _Extent(rest or event.text, class_, left, place).draw(middle)]
        self.y += _ROW + 4

    def add_gap(self, gap: Gap) -> None:
        """What the red column is."""
        first, _, rest = gap.text.partition(". ")
        # On two lines if it is long; together they are one text.
        lines = [first] if len(first) <= _GAP_TEXT_CHARS else first.replace("; ", "; \n", 1).split("\n")
        below = len(lines) - 1 + bool(rest)
        height = _ROW + 6 + 16 * below
        self.under.append(
            el("rect", y=self.y, width="100%", height=height, class_="hf-gap-row hf-gap-label", rx=4)
        )
        cross = el("path", d="M-4-4 4 4M4-4-4 4", class_="hf-gap-edge")
        self.over.append(el("svg", cross, x=12, y=self.y + _ROW / 2 + 3, overflow="visible"))
        parts = [lines[0], *(el("tspan", line, x=24, dy=16) for line in lines[1:])]
        self.over.append(el("text", *parts, x="24", y=self.y + _ROW / 2 + 3, class_="strong hf-gap-text"))
        if rest:
            self.over.append(_text(rest, "24", self.y + _ROW + 12 + 16 * (below - 1), "hf-gap-text"))
        self.y += height + 4

    def add_money(self, start: datetime, end: datetime) -> None:
        """What was spent up to here."""
        money, said = _draw_money(self.drawing, self.scale, start, end)
        if said:
            self.labels.append(_text("spent so far", "6", self.y + _ROW / 2, "dim"))
            self.labels.append(_text(" ".join(said), "6", self.y + _ROW * 1.5, ""))
            self.inside.append(el("svg", money, y=self.y + 2, width="100%", height=_MONEY - 4))
            self.y += _MONEY

    def finish(self, start: datetime, end: datetime, since_s: float) -> Html:
        """The drawing."""
        above, behind = _draw_axis(self.scale, since_s, self.y)
        gaps = _draw_gaps(self.drawing, self.scale, start, end, self.y)
        column = _column(0, self.y, _LABEL_PC, *behind, *gaps, *above, *self.inside)
        label = f"steps of {self.drawing.session}"
        parts = (*self.under, column, *self.labels, *self.over)
        return _svg(self.y + 4, *parts, label=label, class_="hf-steps")


def _tspan(said: str, class_: str, dx: int | None = None) -> Html:
    return el("tspan", shorten(said, _LABEL_CHARS), class_=class_, dx=dx)


def draw_steps(drawing: Drawing, items: Sequence[Item], link: Link | None = None) -> Html:
    """Steps, events and gaps one below the other, on an axis that begins with the first of them.

    Without `link`, what is said more of the session is on the same page.
    """
    start, end = find_span(items)
    scale = make_scale(drawing, items, start, end)
    sheet = _Sheet(drawing, scale, link or (lambda of, place: place if of == drawing.session else None))
    if len(drawing.periods) > 1:
        sheet.labels.append(_text("processes", "6", sheet.y + _ROW / 2, "dim"))
        sheet.inside += _draw_processes(drawing, scale, start, end, sheet.y)
        sheet.y += _ROW + 4
    for item in items:
        if isinstance(item, Step):
            sheet.add_step(item)
        elif isinstance(item, Gap):
            sheet.add_gap(item)
        else:
            sheet.add_event(item)
    sheet.add_money(start, end)
    return sheet.finish(start, end, (start - drawing.start).total_seconds())


_LEGEND: Final = (
    ("hf-model", "model"),
    ("hf-node", "node of the graph"),
    ("hf-tool", "tool"),
    ("hf-delegate", "delegate"),
    ("hf-wait", "waits for a person"),
    ("hf-tool hf-is-doubt", "outcome unknown"),
    ("hf-tool hf-is-cut", "cut off"),
    ("hf-tool hf-is-failed", "failed"),
    ("hf-gap", "no process alive"),
)


def draw_legend(drawing: Drawing) -> Html | None:
    """What the colours mean that are in a drawing."""
    used: set[str] = {"hf-gap"} if drawing.gaps else set()
    for bar in drawing.iter_bars():
        is_plain = bar.status not in ("failed", "doubt", "cut")
        used.add(f"hf-{bar.kind}" if is_plain else f"hf-tool hf-is-{bar.status}")
    keys = [
        el("span", el("svg", el("rect", width=14, height=10, rx=2, class_=class_), aria_hidden="true"), word)
        for class_, word in _LEGEND
        if class_ in used
    ]
    return el("div", *keys, class_="hf-legend") if keys else None

"""What is drawn of a journal: bars, gaps, waits and verdicts at their times, on a scale that says so."""

from __future__ import annotations

import random
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import entries as kinds
from holdfast.core.entries import CallRef
from holdfast.drawing.chapters import Chapter, LeftOut, list_chapters, split
from holdfast.drawing.markup import el, text
from holdfast.drawing.model import Bar, BarKind, Drawing, Event, Row, Step, TimeScale, make_scale
from holdfast.drawing.svg import draw_overview, draw_steps
from holdfast.messages import ToolCall
from tests.drawing.example_journals import START, Author, write_eventful, write_steps


def _row(drawing: Drawing, label: str) -> Row:
    return next(row for step in drawing.steps for row in step.rows if row.label == label)


def test_a_call_is_one_row_with_all_that_became_of_it() -> None:
    """Cut off by a kill, in doubt until a verdict; retried after a failure; asked a person first."""
    drawing = write_eventful()[0].draw()
    charge = _row(drawing, "charge_back")
    assert [(bar.kind, bar.status) for bar in charge.bars] == [("tool", "doubt"), ("doubt", "doubt")]
    assert [mark.text for mark in charge.marks] == ["landed, says verify"]
    assert charge.bars[1].end == charge.marks[0].at
    letter = _row(drawing, "send_letter")
    assert [(bar.kind, bar.status) for bar in letter.bars] == [
        ("wait", "ok"),
        ("tool", "failed"),
        ("tool", "ok"),
    ]
    assert letter.bars[0].took_s == 1900
    assert [mark.text for mark in _row(drawing, "book").marks] == ["in doubt"]


def test_gaps_say_who_was_killed_and_who_took_over() -> None:
    """The first one has an end; the last one has none, because no process has come."""
    drawing = write_eventful()[0].draw()
    first, last = drawing.gaps
    assert first.until is not None
    assert (first.until - first.at).total_seconds() == 7460
    assert first.text.startswith("agent@web-1 was killed or cut off; agent@web-2 took over")
    assert last.until is None
    assert [(one.name, one.ended) for one in drawing.periods] == [
        ("agent@web-1", "lost"),
        ("agent@web-2", "released"),
        ("agent@web-1", "lost"),
    ]


def test_a_session_that_is_held_goes_on() -> None:
    """What has no end runs until now, and there is no gap at the end."""
    author = write_eventful()[0]
    author.wait(60)
    drawing = author.draw(held=True)
    assert len(drawing.gaps) == 1
    book = _row(drawing, "book")
    assert book.bars[0].status == "running"
    assert drawing.end == book.bars[0].end == author.now


def test_what_a_rewind_leaves_behind_is_marked() -> None:
    """The steps after the version that it goes back to."""
    drawing = write_eventful()[0].draw()
    assert [step.number for step in drawing.steps if step.left_behind] == [4]
    (rewind,) = [item for item in drawing.items if isinstance(item, Event) and item.kind == "rewind"]
    assert rewind.to is not None
    assert rewind.to < rewind.at


def test_parallel_calls_have_lanes_of_their_own() -> None:
    """Three tools that ran at once take three rows; one after the other, they would take one."""
    drawing = write_eventful()[0].draw()
    overview = draw_overview(drawing)
    tops = {overview[at:].split('y="')[1].split('"')[0] for at in _find_all(overview, '<rect x="')}
    assert len(tops) >= 5
    one_by_one = draw_overview(write_steps(3).draw())
    assert one_by_one.count(">tools<") == 1


def _find_all(where: str, what: str) -> list[int]:
    return [at for at in range(len(where)) if where.startswith(what, at)]


def test_time_that_nothing_took_is_shortened_and_the_rest_is_to_scale() -> None:
    """Two equal bars are equally wide, though a day lies between them."""
    day = timedelta(days=1)
    bars = [(START, START + timedelta(seconds=2)), (START + day, START + day + timedelta(seconds=2))]
    scale = TimeScale(START, bars[1][1], bars, [])
    widths = [scale.place(b) - scale.place(a) for a, b in bars]
    assert widths[0] == pytest.approx(widths[1])
    assert widths[0] > 0.4
    assert [one.shortened for one in scale.stretches] == [False, True, False]


@given(st.integers(0, 10**6))
def test_a_scale_never_goes_back(seed: int) -> None:
    """Later is further right, whatever overlaps; the beginning is at 0, the end at 1."""
    chance = random.Random(seed)
    end_s = chance.choice([0.0, 0.001, 10.0, 1e6])

    def spans(count: int) -> list[tuple[object, object]]:
        found = []
        for _ in range(count):
            a, b = sorted(chance.uniform(-0.1 * end_s, 1.1 * end_s) for _ in range(2))
            found.append((START + timedelta(seconds=a), START + timedelta(seconds=b)))
        return found  # type: ignore[return-value]

    end = START + timedelta(seconds=end_s)
    scale = TimeScale(START, end, spans(chance.randrange(6)), spans(chance.randrange(3)))  # type: ignore[arg-type]
    times = sorted(chance.uniform(0, end_s) for _ in range(30))
    places = [scale.place_s(one) for one in times]
    assert places == sorted(places)
    assert all(0 <= one <= 1 for one in places)
    assert scale.place(START - timedelta(days=1)) == pytest.approx(0.0, abs=1e-6)
    assert scale.place(end + timedelta(days=1)) == 1.0
    ticks = [at for _, at in scale.list_ticks(6)]
    assert ticks == sorted(ticks)


def test_the_shortest_gap_can_be_seen() -> None:
    """A process that is taken over at once leaves a gap of a millisecond in an hour of work."""
    author = Author()
    author.take("a")
    author.reply("Long.", took_s=3600)
    author.wait(0.001)
    author.take("b")
    author.reply("Longer.", took_s=3600)
    drawing = author.draw()
    scale = make_scale(drawing, drawing.items, drawing.start, drawing.end)
    (gap, _) = drawing.gaps
    assert gap.until is not None
    assert scale.place(gap.until) - scale.place(gap.at) > 0.02


@pytest.mark.parametrize("cut", range(1, 46))
def test_every_beginning_of_a_journal_can_be_drawn(cut: int) -> None:
    """A crash can end a journal after any entry."""
    author, delegates = write_eventful()
    author.entries = author.entries[:cut]
    for held in (True, False):
        drawing = author.draw(held=held, delegates=delegates)
        assert draw_overview(drawing).startswith("<svg")
        assert draw_steps(drawing, drawing.items).startswith("<svg") if drawing.items else True


def test_long_sessions_are_cut_where_nothing_happened() -> None:
    """Both ends stay, and what was unusual; what is left out is summed up."""
    author = write_steps(600, killed_at=200)
    drawing = author.draw()
    parts = split(drawing, rows_max=500)
    kept = [
        item.number
        for part in parts
        if isinstance(part, Chapter)
        for item in part.items
        if isinstance(item, Step)
    ]
    assert {1, 20, 199, 200, 201, 600} <= set(kept)
    assert 100 not in kept
    out = [part for part in parts if isinstance(part, LeftOut)]
    assert len(kept) + sum(part.steps for part in out) == len(drawing.steps)
    assert sum(part.usd for part in out) + sum(
        step.usd
        for part in parts
        if isinstance(part, Chapter)
        for step in part.items
        if isinstance(step, Step)
    ) == pytest.approx(sum(step.usd for step in drawing.steps))


def test_a_call_with_the_id_of_an_earlier_one_has_a_row_of_its_own() -> None:
    """Callers choose the ids of calls that they make themselves."""
    author = Author()
    author.take("a")
    for _ in range(2):
        ran = kinds.ToolRan(call=CallRef(id="same"), tool="look", fingerprint="f", latency_ms=10)
        author.wait(1)
        author.add(ran, b'{"text":"x"}')
        author.checkpoint()
    assert [len(step.rows) for step in author.draw().steps] == [1, 1]


def test_a_failed_request_is_a_bar_of_the_same_row() -> None:
    """The model is asked again in the same step."""
    author = Author()
    author.take("a")
    asked = author.request()
    author.wait(1)
    author.add(kinds.ModelFailed(request=asked, error="overloaded"))
    author.reply("Now.", ToolCall(id="x", name="look", args={}))
    (row,) = author.draw().steps[0].rows
    assert [bar.status for bar in row.bars] == ["failed", "ok"]


def test_markup_escapes_texts_and_attributes() -> None:
    """Quotes, angle brackets, ampersands, controls and marks of direction."""
    assert el("p", "<b>&\"'", title='"><script>') == (
        '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;&quot;&#x27;</p>'
    )
    assert text("a\x00\u202eb\ud800") == "a\\x00\\u202eb\\ud800"


def test_a_bar_is_at_least_thin() -> None:
    """An instant has a bar that can be seen."""
    step = Step(
        seq=1,
        number=1,
        at=START,
        rows=[Row(kind="tool", label="t", bars=[Bar(kind="tool", start=START, end=START)])],
    )
    drawing = Drawing(session="s", start=START, end=START + timedelta(seconds=1), items=[step])
    assert 'width="0.15%"' in draw_steps(drawing, drawing.items)


@pytest.mark.parametrize(("kind", "class_"), [("tool", "hf-on-bar"), ("wait", "dim halo")])
def test_a_text_on_a_bar_can_be_read(kind: BarKind, class_: str) -> None:
    """Without room beside the bar, it stands on it, in a colour for that; on a thin one with a halo."""
    bar = Bar(kind="tool", start=START, end=START + timedelta(seconds=0 if kind == "wait" else 1))
    bars = [bar, Bar(kind=kind, start=START, end=START + timedelta(seconds=1))]
    step = Step(seq=1, number=1, at=START, rows=[Row(kind="tool", label="t", bars=bars)])
    drawing = Drawing(session="s", start=START, end=START + timedelta(seconds=1), items=[step])
    drawn = draw_steps(drawing, drawing.items)
    assert re.findall(r'<text x="[^>]*class="([^"]*)" text-anchor="end">[01][^<]*s<', drawn) == [class_]


def test_a_process_that_takes_its_own_lease_again_leaves_no_gap() -> None:
    """Its call is in doubt until it is settled, and a later kill is drawn all the same."""
    author = Author()
    author.take("a")
    reply = author.reply("Pay.", ToolCall(id="x", name="pay", args={}))
    issued = author.issue(reply, 0, "pay", {})
    author.wait(1)
    author.take("a")
    call = CallRef(id=f"c{reply}-0", reply=reply)
    author.add(kinds.ToolSettled(call=call, issued=issued, verdict="landed", by="ann"))
    author.wait(1)
    author.take("b")
    drawing = author.draw(held=True)
    assert [gap.text.split(";")[0] for gap in drawing.gaps] == ["a was killed or cut off"]
    assert _row(drawing, "pay").bars[0].status == "doubt"


@pytest.mark.parametrize("steps", [1, 5, 40, 1000])
@pytest.mark.parametrize("count", [0, 1, 41, 49, 50, 80, 120])
def test_chapters_have_all_of_a_drawing_once(count: int, steps: int) -> None:
    """Each has the steps that were asked for; a few that are left at the end join the one before them."""
    drawing = write_steps(count, killed_at=count // 2 or None).draw()
    chapters = list_chapters(drawing, steps)
    assert [item for chapter in chapters for item in chapter.items] == drawing.items
    sizes = [sum(isinstance(item, Step) for item in chapter.items) for chapter in chapters]
    assert sizes[:-1] == [steps] * (len(sizes) - 1)
    assert sizes[-1] < 1.25 * steps
    assert len(sizes) == 1 or sizes[-1] >= steps / 4

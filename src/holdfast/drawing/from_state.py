"""The drawing of a state, from what is in memory: nothing is read.

A state has no times of requests, and keeps no leases that have ended. So a request begins with what came
before its reply, and a gap lies between a run without an end and the run that continues it. What is not in
memory is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from ..core.effects import Effect, call_name
from ..core.transcript_items import Item
from ..limits import CARD_BARS_MAX
from .model import Bar, Drawing, Gap, Mark, Row, Status, Step

if TYPE_CHECKING:
    from ..core.session_state import SessionState


def draw_state(state: SessionState, *, run: str | None = None) -> Drawing | None:
    """The drawing of the latest calls and replies in a state, of one run only if `run` is given.

    None if there is nothing to draw.
    """
    facts = state.facts
    # Another thread may fold on: each of these is copied in one go.
    runs = list(facts.runs.values())
    checkpoints = list(islice(reversed(facts.checkpoints.values()), CARD_BARS_MAX))[::-1]
    rows = list(islice(reversed(facts.effects.rows.values()), CARD_BARS_MAX))[::-1]
    items = state.list_items_in_memory()[-CARD_BARS_MAX:]
    since = next((one.started_at for one in runs if one.run == run), None)
    if since is not None:
        rows = [row for row in rows if row.at >= since]
        items = [item for item in items if item.at >= since]
        checkpoints = [one for one in checkpoints if one.at >= since]
        runs = [one for one in runs if one.started_at >= since]
    ends = {call_name(result.call): result.at for item in items for result in (item.results or {}).values()}
    replies = {item.seq: item for item in items if item.role == "assistant"}
    tools = [_draw_call(row, replies, ends, facts.head.updated_at) for row in rows]
    events = sorted(
        {
            *(item.at for item in items),
            *ends.values(),
            *(one.at for one in checkpoints),
            *(one.started_at for one in runs),
        }
    )
    models = [_draw_reply(item, events) for item in items if item.role == "assistant"]
    drawn = [*models, *tools]
    if not drawn:
        return None
    start = min([bar.start for row in drawn for bar in row.bars] + ([since] if since is not None else []))
    end = max(bar.end for row in drawn for bar in row.bars)
    gaps: list[Gap] = []
    for one in runs:
        before = next((other for other in runs if other.run == one.continues), None)
        place = bisect_left(events, one.started_at)
        if before is not None and before.status == "interrupted" and place:
            text = "the run before was cut off, and continued here"
            gaps.append(Gap(seq=0, at=events[place - 1], until=one.started_at, text=text))
    step = Step(seq=0, number=facts.head.step, at=start, rows=drawn)
    marks = [
        Step(seq=one.seq, number=one.step, at=one.at, version=one.version, checkpoint_at=one.at)
        for one in checkpoints
        if start <= one.at
    ]
    return Drawing(
        session=facts.head.session,
        start=start,
        end=max([end, *(one.at for one in checkpoints)]),
        items=[step, *marks, *(gap for gap in gaps if gap.at >= start)],
    )


def _draw_call(row: Effect, replies: Mapping[int, Item], ends: Mapping[str, datetime], now: datetime) -> Row:
    """A call of the ledger, up to its result. One with an entry alone begins with the reply that asked for
    it."""
    statuses: dict[str, Status] = {
        "running": "running",
        "failed": "failed",
        "in_doubt": "doubt",
        "discarded": "cut",
    }
    status = statuses.get(row.status, "ok")
    end = now if status == "running" else ends.get(call_name(row.call), row.at)
    reply = replies.get(row.call.reply or 0)
    start = reply.at if reply is not None and row.outcome == row.issued else row.at
    marks: list[Mark] = []
    if row.status in ("not_landed", "gave_up"):
        marks.append(Mark(at=end, kind="bad", text=row.status.replace("_", " ")))
    elif row.status == "in_doubt":
        marks.append(Mark(at=end, kind="open", text="in doubt"))
    elif row.doubted and row.status == "completed":
        marks.append(Mark(at=end, kind="good", text="was in doubt; landed"))
    bar = Bar(kind="tool", start=start, end=max(end, start), status=status, note=row.tool)
    return Row(kind="tool", label=row.tool, bars=[bar], marks=marks)


def _draw_reply(item: Item, events: list[datetime]) -> Row:
    """A reply, since what came before it."""
    place = bisect_left(events, item.at)
    start = events[place - 1] if place else item.at
    bar = Bar(kind="model", start=start, end=item.at, note="model")
    return Row(kind="model", label="model", bars=[bar])

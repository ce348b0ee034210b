"""What of a long drawing is drawn step by step, and in which parts."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ..limits import CHAPTER_STEPS, DRAWN_FIRST_STEPS, DRAWN_LAST_STEPS, DRAWN_ROWS_MAX
from .model import Drawing, Item, Step


class Chapter(Struct, kw_only=True):
    """Items that share an axis."""

    items: list[Item]


class LeftOut(Struct, kw_only=True):
    """Steps that only the overview shows."""

    first: int
    last: int
    steps: int
    usd: float
    tokens: int
    start: datetime
    end: datetime


def list_chapters(drawing: Drawing, steps: int = CHAPTER_STEPS) -> list[Chapter]:
    """All of the drawing, in parts of so many steps; of fewer, where these have many rows.

    A few steps at the end belong to the part before them.
    """
    found: list[Chapter] = []
    chapter: list[Item] = []
    taken = height = 0
    for item in drawing.items:
        is_step = isinstance(item, Step)
        if chapter and ((is_step and taken >= steps) or height + _height(item) > DRAWN_ROWS_MAX):
            found += _end_chapter(chapter)
            chapter, taken, height = [], 0, 0
        chapter.append(item)
        taken += is_step
        height += _height(item)
    if found and taken < steps / 4 and sum(map(_height, found[-1].items)) + height <= DRAWN_ROWS_MAX:
        found[-1].items += chapter
        return found
    return [*found, *_end_chapter(chapter)]


RULE = (
    f"A session of more than {DRAWN_ROWS_MAX:,} rows is cut: up to {DRAWN_FIRST_STEPS} steps at its "
    f"beginning and {DRAWN_LAST_STEPS} at its end are drawn, and of the others, the latest in which "
    "something was unusual (a kill, a doubt, a failure, a refusal, a person's answer, a rewind) with their "
    "neighbours. The overview shows all steps."
)
"""How `split` chooses, for readers of the page."""


def split(drawing: Drawing, rows_max: int = DRAWN_ROWS_MAX) -> list[Chapter | LeftOut]:
    """The drawing in parts of at most `CHAPTER_STEPS` steps; between them, what is left out."""
    items = drawing.items
    kept = _choose(items, rows_max)
    found: list[Chapter | LeftOut] = []
    chapter: list[Item] = []
    gone: list[Item] = []
    for place, item in enumerate(items):
        if place in kept:
            if gone:
                found += _end_chapter(chapter)
                found += _sum_up(gone)
                chapter, gone = [], []
            elif isinstance(item, Step) and sum(isinstance(one, Step) for one in chapter) >= CHAPTER_STEPS:
                found += _end_chapter(chapter)
                chapter = []
            chapter.append(item)
        else:
            gone.append(item)
    return [*found, *_end_chapter(chapter), *_sum_up(gone)]


def _end_chapter(items: list[Item]) -> list[Chapter]:
    return [Chapter(items=items)] if items else []


def _sum_up(gone: list[Item]) -> list[Chapter | LeftOut]:
    steps = [item for item in gone if isinstance(item, Step)]
    if not steps:
        return []
    return [
        LeftOut(
            first=steps[0].number,
            last=steps[-1].number,
            steps=len(steps),
            usd=sum(step.usd for step in steps),
            tokens=sum(step.tokens for step in steps),
            start=steps[0].at,
            end=gone[-1].at,
        )
    ]


def _choose(items: list[Item], rows_max: int) -> set[int]:
    """The places of the items that are drawn."""
    if sum(_height(item) for item in items) <= rows_max:
        return set(range(len(items)))
    steps = [place for place, item in enumerate(items) if isinstance(item, Step)]
    first = steps[min(DRAWN_FIRST_STEPS, len(steps)) - 1] + 1 if steps else DRAWN_FIRST_STEPS
    last = steps[-min(DRAWN_LAST_STEPS, len(steps))] if steps else len(items) - DRAWN_LAST_STEPS
    kept: set[int] = set()
    room = rows_max

    def keep(place: int) -> None:
        nonlocal room
        if place not in kept and 0 <= place < len(items) and _height(items[place]) <= room:
            kept.add(place)
            room -= _height(items[place])

    # Steps with many calls must not take the room of what was unusual.
    for place in range(len(items) - 1, last - 1, -1):
        if room > rows_max // 2:
            keep(place)
    for place in range(min(first, len(items))):
        if room > rows_max // 3:
            keep(place)
    for place in range(len(items) - 1, -1, -1):
        if items[place].is_notable:
            for near in (place, place - 1, place + 1):
                keep(near)
    return kept


def _height(item: Item) -> int:
    """The rows that it takes."""
    if not isinstance(item, Step):
        return 1
    return (
        1
        + len(item.rows)
        + sum(
            sum(len(step.rows) for step in row.inside.steps[:40])
            for row in item.rows
            if row.inside is not None
        )
    )

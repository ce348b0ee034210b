"""Timelines of the sessions that were looked at last: to draw a long one takes long, and it has many pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import anyio

from ..cli.entry_text import describe
from ..cli.html_page import DelegateReader
from ..core.head import Head
from ..core.session_state import SessionState
from ..drawing.from_journal import draw_journal
from ..drawing.model import Drawing
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import HoldfastError
from ..limits import VIEWER_DRAWINGS, VIEWER_NOW_S
from ..store.store import Store
from ..system.clock import utc_now


class _Stamp(NamedTuple):
    """What a drawing was made of. `now` is when, if the session was held: what it does has no end yet."""

    uid: str
    seq: int
    version: int | None
    now: datetime | None


class _Kept(NamedTuple):
    """A drawing, and how far the delegates in it were read."""

    drawing: Drawing | None
    delegates: Mapping[str, int]


class DrawingCache:
    """Draws the timelines of sessions, unless nothing has happened since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[_Stamp, _Kept] = OrderedDict()
        self._drawing = anyio.Lock()

    async def get(self, head: Head, *, held: bool, version: int | None = None) -> Drawing | None:
        """The timeline of a session, or what it was at a version; None of an empty one."""
        now = _rounded(utc_now()) if held and version is None else None
        stamp = _Stamp(head.uid, head.seq, version, now)
        # One at a time: several who open the same long session wait for one drawing.
        async with self._drawing:
            kept = self._kept.get(stamp)
            if kept is None or not await self._is_current(kept):
                kept = await self._draw(head, now, version)
                for old in [one for one in self._kept if one.uid == head.uid and one.seq < head.seq]:
                    del self._kept[old]
                self._kept[stamp] = kept
                while len(self._kept) > VIEWER_DRAWINGS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(stamp)
            return kept.drawing

    async def _is_current(self, kept: _Kept) -> bool:
        """Whether its delegates have done nothing since."""
        for session, seq in kept.delegates.items():
            try:
                if (await self._store.head(session)).seq != seq:
                    return False
            except HoldfastError:
                return False
        return True

    async def _draw(self, head: Head, now: datetime | None, version: int | None) -> _Kept:
        state = await self._store.load(head.session, version)
        delegates = DelegateReader(self._store, now or utc_now())
        inside = await delegates.draw(state)
        engine = self._store._engine
        drawing = await engine.call(partial(_draw, engine, state, inside, now, version is not None))
        return _Kept(drawing, delegates.seqs)


def _draw(
    engine: Engine,
    state: SessionState,
    delegates: Mapping[str, Drawing],
    now: datetime | None,
    is_earlier: bool,
) -> Drawing | None:
    """Read the journal, and draw it. Blocks."""
    head = state.facts.head
    return draw_journal(
        head.session,
        Journal(engine.driver, head.session).entries(0, state.seq),
        state.facts.effects.rows,
        describe=describe,
        # At an earlier version, the holder of that time was alive.
        held=now is not None or is_earlier,
        now=now or head.updated_at,
        delegates=delegates,
        cap_usd=state.budget.caps.usd,
    )


def _rounded(now: datetime) -> datetime:
    """The time, a little earlier: drawings that are asked for soon after each other are the same."""
    return datetime.fromtimestamp(now.timestamp() // VIEWER_NOW_S * VIEWER_NOW_S, UTC)

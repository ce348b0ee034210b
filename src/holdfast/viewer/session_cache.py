"""The sessions that were looked at last: a long one takes long to fold and to draw, and has many pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Generic, NamedTuple, TypeVar

import anyio

from ..cli.entry_text import describe
from ..cli.html_page import DelegateReader
from ..core.head import Head
from ..core.session_state import SessionState
from ..drawing.chapters import Chapter, list_chapters
from ..drawing.from_journal import draw_journal
from ..drawing.markup import Html
from ..drawing.model import Drawing, find_span
from ..drawing.svg import OverviewDrawing, draw_legend, lay_out_overview
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import HoldfastError
from ..limits import VIEWER_KEPT, VIEWER_NOW_S
from ..store.store import Store
from ..system.clock import utc_now

T = TypeVar("T")


class _Latest(Generic[T]):
    """The values that were used last. One that several ask for at once is made once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, anyio.Event] = {}

    async def get(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[T]],
        is_current: Callable[[T], Awaitable[bool]] | None = None,
    ) -> T:
        """The value, made if it is not there or not current."""
        while (made := self._making.get(key)) is not None:
            await made.wait()
        done = self._making[key] = anyio.Event()
        try:
            value = self._kept.get(key)
            if value is None or (is_current is not None and not await is_current(value)):
                value = self._kept[key] = await make()
            self._kept.move_to_end(key)
            while len(self._kept) > VIEWER_KEPT:
                self._kept.popitem(last=False)
            return value
        finally:
            del self._making[key]
            done.set()


class _Stamp(NamedTuple):
    """What a drawing was made of. `now` is when, if the session was held: what it does has no end yet."""

    uid: str
    seq: int
    version: int | None
    now: datetime | None = None


class DrawnSession:
    """A drawing of a session, and what its pages share. Its parts are made when they are first asked for."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self._chapters: dict[int, list[tuple[Chapter, datetime, datetime]]] = {}

    @cached_property
    def overview(self) -> OverviewDrawing:
        """All of it in a few lanes."""
        return lay_out_overview(self.drawing)

    @cached_property
    def legend(self) -> Html | None:
        """What its colours mean."""
        return draw_legend(self.drawing)

    def divide(self, steps: int) -> list[tuple[Chapter, datetime, datetime]]:
        """Parts of so many steps each, with their beginnings and ends."""
        found = self._chapters.get(steps)
        if found is None:
            chapters = list_chapters(self.drawing, steps)
            found = self._chapters[steps] = [(one, *find_span(one.items)) for one in chapters]
        return found


class _Drawn(NamedTuple):
    """A timeline, and how far the delegates in it were read."""

    timeline: DrawnSession | None
    delegates: Mapping[str, int]


class SessionCache:
    """Folds and draws sessions, unless nothing has happened since."""

    def __init__(self, find_store: Callable[[], Store]) -> None:
        self._find_store = find_store
        self._states: _Latest[SessionState] = _Latest()
        self._drawings: _Latest[_Drawn] = _Latest()

    async def get_state(self, head: Head, version: int | None = None) -> SessionState:
        """The state of a session, or what it was at a version. It is shared: do not read its messages, which
        would stay in memory."""
        return await self._states.get(_Stamp(head.uid, head.seq, version), lambda: self._fold(head, version))

    async def _fold(self, head: Head, version: int | None) -> SessionState:
        engine = self._find_store()._engine
        return await engine.call(partial(_fold, engine, head, version))

    async def find_timeline(
        self, head: Head, *, held: bool, version: int | None = None
    ) -> DrawnSession | None:
        """The timeline of a session, or what it was at a version; None of an empty one."""
        now = _rounded(utc_now()) if held and version is None else None
        drawn = await self._drawings.get(
            _Stamp(head.uid, head.seq, version, now),
            lambda: self._draw(head, now, version),
            self._is_current,
        )
        return drawn.timeline

    async def _is_current(self, drawn: _Drawn) -> bool:
        """Whether its delegates have done nothing since."""
        for session, seq in drawn.delegates.items():
            try:
                if (await self._find_store().head(session)).seq != seq:
                    return False
            except HoldfastError:
                return False
        return True

    async def _draw(self, head: Head, now: datetime | None, version: int | None) -> _Drawn:
        state = await self.get_state(head, version)
        delegates = DelegateReader(self._find_store(), now or utc_now())
        inside = await delegates.draw(state)
        engine = self._find_store()._engine
        drawing = await engine.call(partial(_draw, engine, state, inside, now, version is not None))
        return _Drawn(None if drawing is None else DrawnSession(drawing), delegates.seqs)


def _fold(engine: Engine, head: Head, version: int | None) -> SessionState:
    """Fold a journal. Blocks."""
    journal = Journal(engine.driver, head.session, engine.blobs)
    state = journal.fold()
    return state if version is None else journal.fold(state.get_checkpoint(version).seq)


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

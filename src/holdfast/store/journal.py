"""Reading a journal: across forks, checked, and folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from ..codec import GENESIS, Chain, Line, open_line, parse
from ..content.lazy import BlobSource
from ..entries import Entry, SessionForked, SessionOpened, Span
from ..errors import Corrupt, NotFound
from ..fold import Keyframe, Overview, SessionState, read_keyframe
from ..ids import SessionId
from ..limits import HISTORY_MESSAGES, READ_LINES
from .driver import Driver, hidden_name


class Segment(NamedTuple):
    """Entries `first` to `last` (None: to the end) are in the journal called `name`: that of the session
    `id`, or what forks have kept of it."""

    name: SessionId
    first: int
    last: int | None
    id: SessionId
    uid: str


class Journal:
    """A session's journal with what it inherits: a fork's begins in its origin's.

    `blobs` is where the content that messages refer to is read, by whoever looks at it.
    """

    def __init__(self, driver: Driver, session: SessionId, blobs: BlobSource | None = None) -> None:
        self._driver, self.session, self._blobs = driver, session, blobs
        self.where = f"session {session!r}"
        self.segments = self._find_segments()

    def _find_segments(self) -> list[Segment]:
        name, id, last = self.session, self.session, None
        first = self._first_entry(name)
        if first is None:
            raise NotFound(f"no session {self.session!r}")
        segments: list[Segment] = []
        while True:
            body = first.body
            assert isinstance(body, SessionOpened | SessionForked)
            segments.append(Segment(name, first.seq, last, id, body.uid))
            if isinstance(body, SessionOpened):
                return segments[::-1]
            last, id = first.seq - 1, SessionId(body.origin)
            name, first = self._find_origin(body)

    @property
    def own_from(self) -> int:
        """The first entry that is this session's own, and not inherited."""
        return self.segments[-1].first

    def find_owner(self, seq: int) -> Segment:
        """The part that holds an entry: this session's own, or one that it inherits."""
        return next(one for one in self.segments if one.last is None or seq <= one.last)

    def _find_origin(self, fork: SessionForked) -> tuple[SessionId, Entry]:
        """The origin may have been deleted, and another session made under its id."""
        for name in (SessionId(fork.origin), hidden_name(fork.origin_uid), SessionId(fork.origin)):
            first = self._first_entry(name)
            if first is not None and getattr(first.body, "uid", None) == fork.origin_uid:
                return name, first
        raise Corrupt(self.where, f"the history it shares with {fork.origin!r} is not there")

    def _first_entry(self, name: SessionId) -> Entry | None:
        lines = self._driver.read(name, 0, 1)
        if not lines:
            return None
        entry = open_line(parse(lines[0], self.where), self.where)
        if not isinstance(entry.body, SessionOpened | SessionForked):
            raise Corrupt(self.where, f"begins with {entry.kind}", seq=entry.seq)
        return entry

    def lines(self, after: int = 0, until: int | None = None) -> Iterator[bytes]:
        """The lines with `after` < seq <= `until`, in order."""
        return chain.from_iterable(self._pages(after, until))

    def _pages(self, after: int, until: int | None) -> Iterator[Sequence[bytes]]:
        for segment in self.segments:
            last = segment.last if until is None else min(until, segment.last or until)
            while last is None or after < last:
                if segment.last is not None and after >= segment.last:
                    break
                limit = READ_LINES if last is None else min(READ_LINES, last - after)
                found = self._driver.read(segment.name, max(after, segment.first - 1), limit)
                yield found
                after = max(after, segment.first - 1) + len(found)
                if len(found) < limit:
                    break

    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The entries, decoded one by one but not checked against the chain."""
        for line in self.lines(after, until):
            yield open_line(parse(line, self.where), self.where)

    def page(self, after: int, limit: int) -> list[Entry]:
        """Up to `limit` entries after one."""
        return list(islice(self.entries(after), limit))

    def fold(self, until: int | None = None) -> SessionState:
        """The state after entry `until`, or after the last one. The chain above the keyframe is checked."""
        frame = read_keyframe(self._driver.find_keyframe(self.session))
        if frame is not None and (until is None or frame.seq <= until):
            state = self._fold_from(frame, until)
            if state is not None:
                return state
        state = SessionState(self.session, self._blobs)
        self._fold_tail(state, Chain(self.where, 0, GENESIS), self.lines(0, until))
        if not state.seq:  # Somebody has deleted it since its first entry was read.
            raise NotFound(f"no session {self.session!r}")
        return state

    def _fold_from(
        self, frame: Keyframe, until: int | None, spans: Iterable[Span] | None = None
    ) -> SessionState | None:
        """None if the keyframe is not this journal's, or not enough. `spans`: read only these of it."""
        spans = frame.spans if spans is None else spans
        tail = self.lines(frame.seq - 1, until)
        anchor = next(tail, None)
        if anchor is None or parse(anchor, self.where).sum != frame.sum:
            return None
        state = SessionState.from_keyframe(frame, self._blobs)
        if state is None:
            return None
        state.load_transcript(spans, self._pages_of(spans), self.where)
        self._fold_tail(state, Chain(self.where, frame.seq, frame.sum), tail)
        return state if state.transcript_fold.complete else None

    def overview(self) -> Overview:
        """The session at a glance: the keyframe, what came after it, and only the last messages before it."""
        frame = read_keyframe(self._driver.find_keyframe(self.session))
        if frame is None:
            return self.fold().overview()
        wanted = 4 * HISTORY_MESSAGES
        while True:
            spans = _last_entries(frame.spans, wanted)
            state = self._fold_from(frame, None, spans)
            whole = spans == list(frame.spans)
            if state is not None and (whole or len(state.transcript) >= HISTORY_MESSAGES):
                return state.overview()
            if whole:
                return self.fold().overview()
            wanted *= 4

    def _pages_of(self, spans: Iterable[Span]) -> Iterator[Sequence[bytes]]:
        for span in spans:
            yield from self._pages(span.first - 1, span.last)

    def _fold_tail(self, state: SessionState, chain: Chain, lines: Iterable[bytes]) -> None:
        for data in lines:
            line: Line = chain.check(data)
            state.apply(open_line(line, self.where), line.sum)


def _last_entries(spans: Sequence[Span], count: int) -> list[Span]:
    """The end of the spans, about `count` entries of it."""
    found: list[Span] = []
    for span in reversed(spans):
        if count <= 0:
            break
        first = max(span.first, span.last - count + 1)
        count -= span.last - first + 1
        found.append(Span(first, span.last))
    return found[::-1]

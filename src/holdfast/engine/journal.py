"""Reading a journal: across forks, checked, and folded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

import msgspec

from ..content.lazy import BlobSource
from ..core.codec import GENESIS, Chain, Line, open_line, parse
from ..core.entries import Entry, SessionForked, SessionOpened, Span
from ..core.session_state import Keyframe, Overview, SessionState, read_keyframe
from ..drivers.contract import Driver, Tip, hidden_name
from ..errors import Corrupt, NotFound
from ..ids import SessionId
from ..limits import HISTORY_MESSAGES, READ_LINES

T = TypeVar("T")
NONSENSE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""What stored data raises that can be read and makes no sense: a reference to nothing, a value of another
type. Of our own errors, those that say more about it are no part of this."""


class Segment(NamedTuple):
    """Entries `first` to `last` (None: to the end) are in the journal called `name`: that of the session
    `id`, or what forks have kept of it."""

    name: SessionId
    first: int
    last: int | None
    id: SessionId
    uid: str


class _First(NamedTuple):
    """What a journal begins with."""

    seq: int
    body: SessionOpened | SessionForked


class Journal:
    """A session's journal with what it inherits: a fork's begins in its origin's.

    `blobs` is where the content that messages refer to is read, when it is looked at.
    """

    def __init__(self, driver: Driver, session: SessionId, blobs: BlobSource | None = None) -> None:
        self._driver, self.session, self._blobs = driver, session, blobs
        self.where = f"session {session!r}"
        self.segments = self._find_segments()

    def _find_segments(self) -> list[Segment]:
        name, id, last = self.session, self.session, None
        first = self._first_entry(name) or self._look_again()
        segments: list[Segment] = []
        while True:
            seq, body = first
            # Each part begins before the one that it was forked into: stored references cannot go round.
            if last is not None and seq > last:
                raise Corrupt(
                    self.where, f"it shares entry {last} with {id!r}, which begins with entry {seq}"
                )
            segments.append(Segment(name, seq, last, id, body.uid))
            if isinstance(body, SessionOpened):
                if seq != 1:
                    raise Corrupt(self.where, f"it begins with entry {seq}: those before it are missing")
                return segments[::-1]
            last, id = seq - 1, SessionId(body.origin)
            name, first = self._find_origin(body)

    def _look_again(self) -> _First:
        """For a session without entries: there is none, or all of them are missing."""
        before = self._driver.find_tip(self.session)
        first = self._first_entry(self.session)
        if first is not None:
            return first
        if before is not None and before == self._driver.find_tip(self.session):
            raise Corrupt(self.where, f"it has no entries, but {before.seq} were acknowledged")
        raise NotFound(f"no session {self.session!r}")

    @property
    def own_from(self) -> int:
        """The first entry that is this session's own, and not inherited."""
        return self.segments[-1].first

    def find_owner(self, seq: int) -> Segment:
        """The part that holds an entry: this session's own, or one that it inherits."""
        return next(one for one in self.segments if one.last is None or seq <= one.last)

    def _find_origin(self, fork: SessionForked) -> tuple[SessionId, _First]:
        """The origin may have been deleted, and another session made under its id."""
        for name in (SessionId(fork.origin), hidden_name(fork.origin_uid), SessionId(fork.origin)):
            first = self._first_entry(name)
            if first is not None and first.body.uid == fork.origin_uid:
                return name, first
        raise Corrupt(self.where, f"the history it shares with {fork.origin!r} is not there")

    def _first_entry(self, name: SessionId) -> _First | None:
        lines = self._driver.read(name, 0, 1)
        if not lines:
            return None
        entry = open_line(parse(lines[0], self.where), self.where)
        if not isinstance(entry.body, SessionOpened | SessionForked):
            raise Corrupt(self.where, f"begins with {entry.kind}", seq=entry.seq)
        return _First(entry.seq, entry.body)

    def is_there(self) -> bool:
        """Whether the session still exists, and is not another one that was made under its id."""
        first = self._first_entry(self.session)
        return first is not None and first.body.uid == self.segments[-1].uid

    def lines(self, after: int = 0, until: int | None = None) -> Iterator[bytes]:
        """The lines with `after` < seq <= `until`, in order."""
        return chain.from_iterable(self._pages(after, until))

    def acknowledged(self, after: int = 0) -> Iterator[bytes]:
        """All lines after an entry; `Corrupt` at the end if some that were acknowledged are missing."""
        tip = self._find_tip()
        for line in self.lines(after):
            after += 1
            yield line
        self._check_reached(after, tip.seq, True)

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
                    if segment.last is not None:
                        raise Corrupt(
                            self.where, f"entry {after + 1}, which it shares with {segment.id!r}, is missing"
                        )
                    break

    def entries(self, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The entries, decoded one by one but not checked against the chain."""
        for line in self.lines(after, until):
            entry = open_line(parse(line, self.where), self.where)
            after += 1
            if entry.seq != after:
                raise Corrupt(self.where, f"expected entry {after}, found entry {entry.seq}")
            yield entry

    def page(self, after: int, limit: int) -> list[Entry] | None:
        """Up to `limit` entries after one; None if the session is gone, or another one has its id."""
        while True:
            before = self.segments
            try:
                tip = self._driver.find_tip(self.session)
                found = list(islice(self.entries(after), limit))
                if tip is None or not self.is_there():
                    return None
                self._check_reached(found[-1].seq if found else after, tip.seq, len(found) < limit)
                return found
            except Corrupt:
                # Perhaps the lines were moved while they were read.
                try:
                    self.segments = self._find_segments()
                except NotFound:
                    return None
                if self.segments[-1].uid != before[-1].uid:
                    return None
                if self.segments == before:
                    raise

    def fold(self, until: int | None = None) -> SessionState:
        """The state after entry `until`, or after the last one.

        The chain above the keyframe is checked, and whether the journal goes as far as the store knows it to.
        """
        return self._read_whole(lambda tip: self._fold(until, tip), until)

    def _read_whole(self, read: Callable[[Tip | None], T], until: int | None = None) -> T:
        """Read again if the session was made anew, or its origin was deleted, while it was read."""
        while True:
            before = self.segments
            try:
                return read(self._find_tip() if until is None else None)
            except (Corrupt, NotFound):
                self.segments = self._find_segments()
                if self.segments == before:
                    raise

    def _find_tip(self) -> Tip:
        """What the journal must have at least. Looked up before the lines are read: it may grow meanwhile."""
        tip = self._driver.find_tip(self.session)
        if tip is not None and (tip.head is None or tip.head.uid == self.segments[-1].uid):
            return tip
        if not self.is_there():
            raise NotFound(f"no session {self.session!r}")
        if tip is None:
            raise Corrupt(self.where, "it has entries, but the store does not know where they end")
        raise Corrupt(self.where, "its journal is that of another session")

    def _fold(self, until: int | None, tip: Tip | None) -> SessionState:
        frame = read_keyframe(self._driver.find_keyframe(self.session))
        if frame is not None and (until is None or frame.seq <= until):
            state = self._fold_from(frame, until, tip)
            if state is not None:
                return state
        state = SessionState(self.session, self._blobs)
        self._fold_tail(state, Chain(self.where, 0, GENESIS), self.lines(0, until), tip)
        if not state.seq:  # It was deleted since its first entry was read.
            raise NotFound(f"no session {self.session!r}")
        return state

    def _fold_from(
        self, frame: Keyframe, until: int | None, tip: Tip | None, spans: Iterable[Span] | None = None
    ) -> SessionState | None:
        """None if the keyframe is not this journal's, or not enough. `spans`: read only these of it."""
        spans = frame.spans if spans is None else spans
        tail = self.lines(frame.seq - 1, until)
        anchor = next(tail, None)
        if anchor is None or parse(anchor, self.where).sum != frame.sum:
            return None
        state = SessionState.from_keyframe(frame, self._blobs)
        if state is None or state.facts.head.session != self.session:
            return None
        try:
            state.load_transcript(spans, self._pages_of(spans), self.where)
        except NONSENSE as error:
            raise Corrupt(self.where, f"its messages make no sense ({error!r})") from error
        self._fold_tail(state, Chain(self.where, frame.seq, frame.sum), tail, tip)
        return state if state.transcript_fold.complete else None

    def overview(self) -> Overview:
        """The session at a glance: the keyframe, what came after it, and only the last messages before it."""
        return self._read_whole(self._overview)

    def _overview(self, tip: Tip | None) -> Overview:
        frame = read_keyframe(self._driver.find_keyframe(self.session))
        if frame is None:
            return self._fold(None, tip).overview()
        wanted = 4 * HISTORY_MESSAGES
        while True:
            spans = _last_entries(frame.spans, wanted)
            state = self._fold_from(frame, None, tip, spans)
            whole = spans == list(frame.spans)
            if state is not None and (whole or len(state.transcript) >= HISTORY_MESSAGES):
                return state.overview()
            if whole:
                return self._fold(None, tip).overview()
            wanted *= 4

    def _pages_of(self, spans: Iterable[Span]) -> Iterator[Sequence[bytes]]:
        for span in spans:
            after = span.first - 1
            for page in self._pages(after, span.last):
                after += len(page)
                yield page
            if after < span.last:
                raise Corrupt(self.where, f"entry {after + 1} is missing")

    def _fold_tail(self, state: SessionState, chain: Chain, lines: Iterable[bytes], tip: Tip | None) -> None:
        """Fold what comes next. `tip`: an entry that must be there, and its sum."""
        seq, sum = (0, "") if tip is None else (tip.seq, tip.sum)
        if chain.seq == seq and chain.sum != sum:
            raise Corrupt(self.where, _OTHER_END, seq=seq)
        for data in lines:
            line: Line = chain.check(data)
            if line.seq == seq and line.sum != sum:
                raise Corrupt(self.where, _OTHER_END, seq=seq)
            try:
                state.apply(open_line(line, self.where), line.sum)
            except NONSENSE as error:
                why = f"it makes no sense after what came before it ({line.kind}: {_words(error)})"
                raise Corrupt(self.where, why, seq=line.seq) from error
        self._check_reached(state.seq, seq, True)

    def _check_reached(self, seq: int, acknowledged: int, ended: bool) -> None:
        if ended and seq < acknowledged:
            why = f"it ends with entry {seq}, but {acknowledged} were acknowledged: the last are missing"
            raise Corrupt(self.where, why)


_OTHER_END: Final = "it is not the entry that was acknowledged under this number"


def _words(error: BaseException) -> str:
    """What an error says; a bare key or number says too little by itself."""
    return f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error) or repr(error)


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

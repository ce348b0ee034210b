"""Reading a journal: across forks, checked, and folded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ..content.lazy import BlobReader, BlobSource, has_marks
from ..core.codec import GENESIS, Page, erase
from ..core.entries import Entry, SessionForked, SessionOpened, Span
from ..core.pages import ALL_KINDS, Chain, OpenChunk, cut_page, last_span, open_page, read_contents
from ..core.session_state import AdapterFold, Keyframe, Overview, SessionState, read_keyframe
from ..core.transcript import Transcript
from ..core.transcript_items import Content, Contents
from ..drivers.contract import Driver, Erasure, Tip, hidden_name
from ..errors import Corrupt, NotFound
from ..ids import SessionId
from ..limits import HISTORY_MESSAGES, READ_CHUNKS
from ..system import threads

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
            if body.id != id:
                raise Corrupt(self.where, f"its journal is that of session {body.id!r}")
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
        page = self._driver.read(name, 0, 1, said=False)
        entry = next(open_page(page, self.where), None) if page.count else None
        if entry is None:
            return None
        if not isinstance(entry.body, SessionOpened | SessionForked):
            raise Corrupt(self.where, f"begins with {entry.kind}", seq=entry.seq)
        return _First(entry.seq, entry.body)

    def is_there(self) -> bool:
        """Whether the session still exists, and is not another one that was made under its id."""
        first = self._first_entry(self.session)
        return first is not None and first.body.uid == self.segments[-1].uid

    def pages(self, after: int = 0, until: int | None = None, *, said: bool) -> Iterator[Page]:
        """The chunks that hold the entries with `after` < seq <= `until`, in order."""
        for segment in self.segments:
            last = segment.last if until is None else min(until, segment.last or until)
            after = max(after, segment.first - 1)
            while last is None or after < last:
                # No chunk is empty.
                limit = READ_CHUNKS if last is None else min(READ_CHUNKS, last - after)
                found = self._driver.read(segment.name, after, limit, said=said)
                page = found if last is None else cut_page(found, last, self.where)
                if page.count:
                    after = self._end_of(page, after)
                    yield page
                if found.count < limit and (last is None or after < last):
                    if segment.last is not None:
                        raise Corrupt(
                            self.where, f"entry {after + 1}, which it shares with {segment.id!r}, is missing"
                        )
                    break

    def _end_of(self, page: Page, after: int) -> int:
        """The last entry of a page of what comes after an entry. It does, or reading on would never end."""
        first, last = last_span(page, self.where)
        if last <= after:
            raise Corrupt(self.where, f"expected entry {after + 1}, found entry {first}")
        return last

    def entries(self, after: int = 0, until: int | None = None, *, said: bool = True) -> Iterator[Entry]:
        """The entries, not checked against the chain; without `said`, their contents are not read."""
        for page in self.pages(after, until, said=said):
            for entry in open_page(page, self.where):
                if entry.seq <= after:
                    continue
                if until is not None and entry.seq > until:
                    return
                if entry.seq != after + 1:
                    raise Corrupt(self.where, f"expected entry {after + 1}, found entry {entry.seq}")
                after = entry.seq
                yield entry

    def chunks(self, after: int = 0) -> Iterator[OpenChunk]:
        """The chunks that end after an entry, with what was said, not checked against the chain."""
        for page in self.pages(after, said=True):
            yield from ALL_KINDS.decode(page, self.where)

    def find_sum(self, seq: int) -> str | None:
        """The sum of the chunk that ends with an entry; None if no chunk does."""
        page = next(self.pages(seq - 1, seq, said=False), None)
        if page is None or last_span(page, self.where).last != seq:
            return None
        return page.sums.decode("ascii", "replace")

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

    def _read_later(self, read: Callable[[], T]) -> T:
        """Read what belongs to a state that was folded before. Meanwhile, the session or one that it shares
        entries with may have been deleted, and another one made under its id."""
        while True:
            try:
                found = read()
            except (Corrupt, NotFound):
                if not self._has_moved():
                    raise
            else:
                if not self._has_moved():
                    return found

    def _has_moved(self) -> bool:
        """Whether the entries are elsewhere than when last looked for; `NotFound` if they are gone."""
        now = self._find_segments()
        if now[-1].uid != self.segments[-1].uid:
            raise NotFound(f"session {self.session!r} was deleted before its messages were looked at")
        before, self.segments = self.segments, now
        return now != before

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
        state = SessionState(self.session, self._blobs, Contents(partial(self.read_contents, 0)))
        self._fold_tail(state, Chain(self.where, 0, GENESIS), self.pages(0, until, said=False), tip)
        if not state.seq:  # It was deleted since its first entry was read.
            raise NotFound(f"no session {self.session!r}")
        return state

    def _fold_from(
        self, frame: Keyframe, until: int | None, tip: Tip | None, spans: Iterable[Span] | None = None
    ) -> SessionState | None:
        """None if the keyframe is not this journal's, or not enough. `spans`: read only these of it."""
        found = self._open_at(frame, until, spans)
        if found is None:
            return None
        state, tail = found
        self._fold_tail(state, Chain(self.where, frame.seq, frame.sum), tail, tip)
        self._end_reading(state, tip, whole=spans is None)
        return state if state.is_complete else None

    def _end_reading(self, state: SessionState, tip: Tip | None, *, whole: bool) -> None:
        """The number of messages is known from the head, unless only some of them are read."""
        is_there = tip is not None and (tip.seq, tip.sum) == (state.seq, state.facts.head.sum)
        head = tip.head if tip is not None and is_there and whole else None
        state.end_reading(None if head is None else head.messages)

    def fold_on(
        self,
        state: SessionState,
        sum: str,
        fold: Callable[[Entry], None],
        restore: Callable[[AdapterFold], bool] | None = None,
        *,
        said: bool = False,
    ) -> SessionState:
        """Fold what comes after `state`, which follows the chunk with this sum; the state after it.

        `fold` is given each entry, too, with its content if `said`: an adapter folds its own entries by it.
        With `restore`, the journal is read from its last keyframe, if that holds a fold of the adapter that
        `restore` can use; `state` is then one of a journal of which nothing was read.
        """
        tip = self._find_tip()
        frame = None if restore is None else read_keyframe(self._driver.find_keyframe(self.session))
        pages = None
        if restore is not None and frame is not None and isinstance(frame.adapter, AdapterFold):
            found = self._open_at(frame)
            if found is not None and restore(frame.adapter):
                (state, pages), sum = found, frame.sum
        tail = self.pages(state.seq, said=said) if pages is None else pages
        state.facts.head.sum = sum
        self._fold_tail(state, Chain(self.where, state.seq, sum), tail, tip, fold)
        self._end_reading(state, tip, whole=True)
        if not state.seq:  # It was deleted since its first entry was read.
            raise NotFound(f"no session {self.session!r}")
        return state

    def _open_at(
        self, frame: Keyframe, until: int | None = None, spans: Iterable[Span] | None = None
    ) -> tuple[SessionState, Iterator[Page]] | None:
        pages = self.pages(frame.seq - 1, until, said=False)
        first = next(pages, None)
        if first is None:
            return None
        anchor, rest = first.part(0, 1), first.part(1)
        if (
            last_span(anchor, self.where).last != frame.seq
            or anchor.sums.decode("ascii", "replace") != frame.sum
        ):
            return None
        if spans is not None:
            frame = replace(frame, spans=tuple(spans))
        state = SessionState.from_keyframe(frame, partial(self._load_transcript, frame.seq), self._blobs)
        if state is None or state.facts.head.session != self.session:
            return None
        return state, chain([rest] if rest.count else [], pages)

    def _load_transcript(self, checked_after: int, spans: Sequence[Span], said: bool) -> Transcript:
        """Fold the messages and results of a keyframe's spans, with their contents or without."""
        return self._read_later(lambda: self._read_transcript(checked_after, spans, said))

    def _read_transcript(self, checked_after: int, spans: Sequence[Span], said: bool) -> Transcript:
        contents = Contents(partial(self.read_contents, checked_after))
        transcript = Transcript(BlobReader(self.session, self._blobs), contents)
        try:
            # Closed here also after an error, so that no thread reads on.
            with closing(_read_ahead(self._pages_of(spans, said))) as pages:
                transcript.load(spans, pages, self.where)
        except NONSENSE as error:
            raise Corrupt(self.where, f"its messages make no sense ({error!r})") from error
        return transcript

    def read_contents(self, checked_after: int, spans: Sequence[Span], own: bool) -> dict[int, Content]:
        """The contents of the entries in these spans. `own`: all messages in them are of our format.

        Those after entry `checked_after` are compared with the digests in the chain.
        """
        return self._read_later(lambda: self._collect_contents(checked_after, spans, own))

    def _collect_contents(self, checked_after: int, spans: Sequence[Span], own: bool) -> dict[int, Content]:
        found: dict[int, Content] = {}
        for span in spans:
            for page in self.pages(span.first - 1, span.last, said=True):
                # References to blobs are read on first access.
                eager = own and page.said is not None and not has_marks(page.said)
                contents = read_contents(page, self.where, checked_after=checked_after, may_be_messages=eager)
                for seq, content in contents:
                    if span.first <= seq <= span.last:
                        found[seq] = content.copy() if isinstance(content, msgspec.Raw) else content
        return found

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
            if state is not None:
                state.read_transcript()
                if whole or state.transcript_fold.ends_exactly(HISTORY_MESSAGES, frame.spans):
                    return state.overview()
            if whole:
                return self._fold(None, tip).overview()
            wanted *= 4

    def _pages_of(self, spans: Iterable[Span], said: bool) -> Iterator[Page]:
        for span in spans:
            after = span.first - 1
            for page in self.pages(after, span.last, said=said):
                after = last_span(page, self.where).last
                yield page
            if after < span.last:
                raise Corrupt(self.where, f"entry {after + 1} is missing")

    def _fold_tail(
        self,
        state: SessionState,
        chain: Chain,
        pages: Iterable[Page],
        tip: Tip | None,
        fold: Callable[[Entry], None] | None = None,
    ) -> None:
        """Fold what comes next, also by `fold`. `tip`: a chunk that must be there, and its sum."""
        seq, sum = (0, "") if tip is None else (tip.seq, tip.sum)
        if chain.seq == seq and chain.sum != sum:
            raise Corrupt(self.where, _OTHER_END, seq=seq)
        for page in pages:
            for chunk in chain.open(page):
                if chunk.first <= seq <= chunk.last and (chunk.last, chunk.sum) != (seq, sum):
                    raise Corrupt(self.where, _OTHER_END, seq=seq)
                for entry in chunk.entries:
                    try:
                        state.apply(entry)
                        if fold is not None:
                            fold(entry)
                    except NONSENSE as error:
                        why = f"it makes no sense after what came before it ({entry.kind}: {_words(error)})"
                        raise Corrupt(self.where, why, seq=entry.seq) from error
                state.facts.head.sum = chunk.sum
        self._check_reached(state.seq, seq, True)

    def _check_reached(self, seq: int, acknowledged: int, ended: bool) -> None:
        if ended and seq < acknowledged:
            why = f"it ends with entry {seq}, but {acknowledged} were acknowledged: the last are missing"
            raise Corrupt(self.where, why)


def _read_ahead(pages: Iterator[Page]) -> Generator[Page]:
    """The same pages: while one of them is decoded, a thread reads the next from the disk."""
    page = next(pages, None)
    if page is not None and page.count >= READ_CHUNKS:  # Else there are few more, if any.
        with threads.ThreadPoolExecutor(1, "holdfast read") as reader:
            while page is not None:
                try:
                    coming = reader.submit(next, pages, None)
                except RuntimeError:
                    break  # The interpreter is ending, and begins no threads: those that still run read here.
                yield page
                page = coming.result()
    yield from chain([] if page is None else [page], pages)


def find_erasures(
    driver: Driver, session: SessionId, choose: Callable[[Entry], tuple[bool, bool]]
) -> dict[int, Erasure]:
    """What to erase in the chunks of a session, for `Driver.erase`.

    `choose` says of an entry whether its details are erased, and whether its content is.
    """
    where, after = f"session {session!r}", 0
    found: dict[int, Erasure] = {}
    while (page := driver.read(session, after, READ_CHUNKS, said=True)).count:
        assert page.said is not None
        parts = zip(page.details.split(b"\n"), page.said.split(b"\n"), strict=True)
        for chunk, (details, said) in zip(ALL_KINDS.decode(page, where), parts, strict=True):
            if chunk.last <= after:
                raise Corrupt(where, f"expected entry {after + 1}, found entry {chunk.first}")
            after = chunk.last
            chosen = [(entry.seq - chunk.first, *choose(entry)) for entry in chunk.entries]
            left = Erasure(
                erase(details, (place for place, words, _ in chosen if words), where),
                erase(said, (place for place, _, content in chosen if content), where),
            )
            if left != Erasure(details, said):
                found[chunk.last] = Erasure(
                    *(None if one == b"null" else one for one in (left.details, left.said))
                )
    return found


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

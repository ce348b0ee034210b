"""Reading chunks: many at once, checked against the chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple, Union

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ..errors import Corrupt, NewerFormat
from ..messages import Message
from .codec import (
    GENESIS,
    VERSION,
    Chunk,
    Element,
    Erased,
    Page,
    decode_elements,
    digest_of_elements,
    read_body,
    sum_of,
    with_details,
)
from .entries import KIND_OF, KINDS, Entry, Span

_NO_ENTRIES = "a chunk without entries"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class OpenChunk(NamedTuple):
    """The entries of a chunk, its `sum`, and the `seq` of its first and last entry."""

    first: int
    last: int
    sum: str
    entries: Sequence[Entry]


class _StoredEntry(Struct, kw_only=True, gc=False):
    """An entry of any kind, in the facts of a chunk."""

    kind: str
    must: bool = False
    run: str | UnsetType = UNSET
    """If it is not that of the chunk; empty for none."""
    body: Raw


_EveryEntry = msgspec.defstruct(
    "_EveryEntry", [("must", bool, False), ("run", str | UnsetType, UNSET)], kw_only=True, gc=False
)


def _entry_type(bodies: Mapping[str, type]) -> Any:
    """The type of an entry whose body is decoded to these types, by kind. Other bodies stay JSON."""
    kinds = [
        msgspec.defstruct(
            "_EntryOfKind",
            [("body", bodies.get(kind, Raw))],
            bases=(_EveryEntry,),
            tag_field="kind",
            tag=kind,
            kw_only=True,
            gc=False,
        )
        for kind in KINDS
    ]
    return Union[tuple(kinds)]  # noqa: UP007


def _facts_type(entry: Any) -> Any:
    return msgspec.defstruct(
        "_ChunkFacts",
        [
            ("v", Annotated[int, Meta(le=VERSION)]),
            ("seq", int),
            ("at", Annotated[datetime, Meta(tz=True)]),
            ("run", str | None, None),
            ("step", int, 0),
            ("us", list[int] | None, None),
            ("entries", list[entry]),
            ("details", str, ""),
            ("said", str, ""),
        ],
        kw_only=True,
        gc=False,
    )


class _Version(Struct):
    v: int
    seq: int = 0


_decode_version = msgspec.json.Decoder(_Version).decode
_decode_generic = msgspec.json.Decoder(_facts_type(_StoredEntry)).decode


class FactsDecoder:
    """Decodes the facts of many chunks at once, for readers that need only some kinds of entries."""

    def __init__(self, bodies: Mapping[str, type] = KINDS) -> None:
        """Entries of kinds that are not in `bodies` may be left out."""
        self._wanted = frozenset(bodies.values())
        self._decode = msgspec.json.Decoder(_facts_type(_entry_type(bodies))).decode_lines

    def decode(self, page: Page, where: str, *, chain: Chain | None = None) -> Iterator[OpenChunk]:
        """The chunks of a page, in order; their entries without details that are `null` in the page.

        `Corrupt` if one is missing or damaged, or if its sum does not follow the one before it (`chain`).
        """
        facts = self.decode_facts(page, where, chain)
        if not facts:
            return
        lines = page.facts.split(b"\n") if chain is not None else ()
        # A damaged sum follows from no chunk.
        sums = page.sums.decode("ascii", "replace").split("\n")
        if len(sums) != page.count:
            raise Corrupt(where, "a chunk is not one line")
        all_details = _elements(page.details, facts, where)
        all_said = None if page.said is None else _elements(page.said, facts, where)
        for place, (chunk, sum) in enumerate(zip(facts, sums, strict=True)):
            last = chunk.seq + len(chunk.entries) - 1
            details = all_details[place]
            said = None if all_said is None else all_said[place]
            if chain is not None:
                _check_parts(chunk, details, said, all_said is not None, where)
                chain.accept(chunk.seq, last, sum, lines[place])
            entries = self.entries_of(chunk, details, said, all_said is not None, where)
            yield OpenChunk(chunk.seq, last, sum, entries)

    def decode_facts(self, page: Page, where: str, chain: Chain | None = None) -> list[Any]:
        """The facts of the chunks, none of them missing, with entries in the form that `entries_of` takes."""
        if not page.count:
            return []
        try:
            facts: list[Any] = self._decode(page.facts)
        except _UNREADABLE:
            # A kind or value of a newer version, or damage: decode one by one to find out.
            facts = _decode_one_by_one(page.facts, where, chain)
        if not len(facts) == page.count == page.facts.count(b"\n") + 1:
            raise Corrupt(where, "a chunk is not one line")
        following = facts[0].seq
        for chunk in facts:
            if chunk.seq != following:
                raise Corrupt(where, f"expected entry {following}, found entry {chunk.seq}")
            if not chunk.entries:
                raise Corrupt(where, _NO_ENTRIES, seq=chunk.seq)
            following += len(chunk.entries)
        return facts

    def entries_of(
        self,
        chunk: Any,
        details: list[Element] | None,
        said: list[Element] | None,
        with_said: bool,
        where: str,
    ) -> list[Entry]:
        """The entries of a chunk that was decoded here, but for those that may be left out."""
        seq, at, run, step, us = chunk.seq, chunk.at, chunk.run, chunk.step, chunk.us
        unread = bool(chunk.said) and not with_said
        entries: list[Entry] = []
        for place, one in enumerate(chunk.entries):
            kind: str | None = None
            try:
                kind, body = self._open(one)
                if kind is None:
                    continue
                words = None if details is None else details[place]
                if isinstance(words, tuple):
                    body = with_details(body, words[1])
                element = None if said is None else said[place]
                made = at if us is None else at + timedelta(microseconds=us[place])
            except (*_UNREADABLE, LookupError, OverflowError) as error:
                why = f"not an entry of kind {kind or one.kind} ({error})"
                raise Corrupt(where, why, seq=seq + place) from error
            entries.append(
                Entry(
                    seq=seq + place,
                    at=made,
                    run=run if one.run is UNSET else one.run or None,
                    step=step,
                    kind=kind,
                    must=one.must,
                    body=body,
                    content=element[1] if isinstance(element, tuple) else None,
                    erased=isinstance(element, Erased),
                    unread=unread,
                    details_erased=isinstance(words, Erased),
                )
            )
        return entries

    def _open(self, one: Any) -> tuple[str | None, Any]:
        """The kind and the body of an entry; no kind for one that may be left out."""
        if one.__class__ is _StoredEntry:
            body = read_body(one.kind, one.body)
            is_wanted = body.__class__ in self._wanted or body.__class__ not in KIND_OF
            return one.kind if is_wanted else None, body
        return KIND_OF.get(one.body.__class__), one.body


def _decode_one_by_one(facts: bytes, where: str, chain: Chain | None) -> list[Any]:
    """Chunks with entries of any kind. The error names the first one that cannot be read, if it is known."""
    found: list[Any] = []
    expected = None if chain is None else chain.seq + 1
    for line in facts.split(b"\n"):
        try:
            chunk = _decode_generic(line)
        except _UNREADABLE as error:
            _refuse_newer(line, where)
            raise Corrupt(where, f"not a chunk of a journal ({error})", seq=expected) from error
        expected = chunk.seq + len(chunk.entries)
        found.append(chunk)
    return found


def _refuse_newer(line: bytes, where: str) -> None:
    try:
        found = _decode_version(line)
    except _UNREADABLE:
        return
    if found.v > VERSION:
        raise NewerFormat(f"{where}: entry {found.seq} has format {found.v}; this holdfast reads {VERSION}")


def _elements(part: bytes, facts: Sequence[Any], where: str) -> list[list[Element] | None]:
    """The elements of details or said, for each chunk with these facts."""
    try:
        found = decode_elements(part)
    except _UNREADABLE as error:
        seq = _first_unreadable(part, facts)
        raise Corrupt(where, f"what was said cannot be read ({error})", seq=seq) from error
    if not len(found) == len(facts) == part.count(b"\n") + 1:
        raise Corrupt(where, "what was said is not one line")
    return found


def _first_unreadable(part: bytes, facts: Sequence[Any]) -> int | None:
    for line, chunk in zip(part.split(b"\n"), facts, strict=False):
        try:
            decode_elements(line)
        except _UNREADABLE:
            return int(chunk.seq)
    return None


def _check_parts(
    chunk: Any, details: list[Element] | None, said: list[Element] | None, with_said: bool, where: str
) -> None:
    """Compare details and what was said with the digests in the facts."""
    if not (_has_digest(details, chunk.details) and (not with_said or _has_digest(said, chunk.said))):
        raise Corrupt(where, _NOT_WRITTEN_WITH, seq=chunk.seq)


_NOT_WRITTEN_WITH: Final = "what was said is not what the entry was written with"


def check_presence(elements: Sequence[Any] | None, chunk: Any, where: str) -> None:
    """Raise `Corrupt` if what was said in a chunk is missing: erasing leaves digests, and not nothing."""
    if elements is None and chunk.said:
        raise Corrupt(where, _NOT_WRITTEN_WITH, seq=chunk.seq)


def _has_digest(elements: list[Element] | None, digest: str) -> bool:
    if elements is None or not digest:
        return elements is None and not digest
    try:
        return digest_of_elements(elements) == digest
    except ValueError:
        return False


class Chain:
    """Reads chunks in order and detects gaps, altered chunks and torn tails.

    `seq` and `sum` are those of the last accepted chunk.
    """

    def __init__(self, where: str, seq: int = 0, sum: str = GENESIS) -> None:
        self.where, self.seq, self.sum = where, seq, sum

    def accept(self, first: int, last: int, sum: str, facts: bytes) -> None:
        """Accept the next chunk, or raise `Corrupt` and accept nothing."""
        if first != self.seq + 1:
            raise Corrupt(self.where, f"expected entry {self.seq + 1}, found entry {first}")
        if last < first or sum != sum_of(facts, self.sum):
            why = "its sum does not follow from the chunk before it and its facts"
            raise Corrupt(self.where, why, seq=first)
        self.seq, self.sum = last, sum

    def open(self, page: Page) -> Iterator[OpenChunk]:
        """The chunks of a page, each checked."""
        return ALL_KINDS.decode(page, self.where, chain=self)


ALL_KINDS = FactsDecoder()


def open_page(page: Page, where: str) -> Iterator[Entry]:
    """The entries of a page, in order, but not checked against the chain."""
    for chunk in ALL_KINDS.decode(page, where):
        yield from chunk.entries


class _ChunkSpan(Struct, gc=False):
    seq: int
    entries: list[Raw]


_decode_span = msgspec.json.Decoder(_ChunkSpan).decode


def span_of(facts: bytes, where: str) -> Span:
    """The entries of a chunk with these facts."""
    try:
        found = _decode_span(facts)
    except _UNREADABLE as error:
        _refuse_newer(facts, where)
        raise Corrupt(where, f"not a chunk of a journal ({error})") from error
    if not found.entries:
        raise Corrupt(where, _NO_ENTRIES, seq=found.seq)
    return Span(found.seq, found.seq + len(found.entries) - 1)


def split_page(page: Page, where: str) -> list[Chunk]:
    """The chunks of a page that was read with what was said."""
    assert page.said is not None
    if not page.count:
        return []
    parts = [part.split(b"\n") for part in (page.sums, page.facts, page.details, page.said)]
    if any(len(lines) != page.count for lines in parts):
        raise Corrupt(where, "a chunk is not one line")
    return [
        Chunk(
            span_of(facts, where).last, sum.decode("ascii", "replace"), facts, _whole(details), _whole(said)
        )
        for sum, facts, details, said in zip(*parts, strict=True)
    ]


def _whole(part: bytes) -> bytes | None:
    return None if part == b"null" else part


def last_span(page: Page, where: str) -> Span:
    """The entries of the last chunk of a page."""
    return span_of(page.facts[page.facts.rfind(b"\n") + 1 :], where)


def cut_page(page: Page, until: int, where: str) -> Page:
    """The chunks of a page that begin by entry `until`."""
    if not page.count or last_span(page, where).first <= until:
        return page
    lines = page.facts.split(b"\n")
    kept = sum(span_of(line, where).first <= until for line in lines)
    return page.part(0, kept)


# -- contents ------------------------------------------------------------------------------------------


class _ChunkPlace(Struct, gc=False):
    """Where a chunk begins, and the digest of what was said in it."""

    seq: int
    said: str = ""


_decode_places = msgspec.json.Decoder(_ChunkPlace).decode_lines
_decode_messages = msgspec.json.Decoder(
    list[tuple[str, Message] | Erased | None] | None,
).decode_lines


def decode_said(page: Page, chunks: Sequence[Any], where: str, may_be_messages: bool) -> list[Any]:
    """What was said in each of the chunks: its elements. With `may_be_messages`, messages of our format are
    decoded at once, where a page holds nothing else: skipping a message takes as long as decoding it."""
    assert page.said is not None
    if may_be_messages:
        with suppress(*_UNREADABLE):
            arrays: list[Any] = _decode_messages(page.said)
            if len(arrays) == len(chunks):
                return arrays
    return _elements(page.said, chunks, where)


def read_contents(
    page: Page, where: str, *, checked_after: int, may_be_messages: bool
) -> Iterator[tuple[int, Raw | Message | None]]:
    """The contents in a page, each with its entry: as they are stored, or None if they were erased.

    Chunks after entry `checked_after` are compared with the digests in their facts. With `may_be_messages`,
    messages of our format are decoded at once, where a page holds nothing else: skipping a message takes as
    long as decoding it.
    """
    assert page.said is not None
    if not page.count:
        return
    try:
        places = _decode_places(page.facts)
    except _UNREADABLE as error:
        raise Corrupt(where, f"not a chunk of a journal ({error})") from error
    if not len(places) == page.count == page.facts.count(b"\n") + 1:
        raise Corrupt(where, "a chunk is not one line")
    arrays = decode_said(page, places, where, may_be_messages and places[-1].seq <= checked_after)
    for place, elements in zip(places, arrays, strict=True):
        if place.seq > checked_after and not _has_digest(elements, place.said):
            raise Corrupt(where, _NOT_WRITTEN_WITH, seq=place.seq)
        check_presence(elements, place, where)
        for offset, element in enumerate(elements or ()):
            if element is not None:
                yield place.seq + offset, element[1] if element.__class__ is tuple else None

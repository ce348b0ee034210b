"""Lines as they are stored, and which of them belong to whole commits.

    {"facts":{…},"sum":"…","details":[…],"said":[…]}
    {"facts":{…},"sum":"…","said":[…],"end":5}

A line is a chunk; parts that are empty are left out. The second line ends a commit of five entries. A crash
can tear only what was being appended, which is the last commit: it counts as a whole or not at all. Damage
anywhere else was not made by a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from ...core.codec import Chunk, Page

UNREADABLE = "not a line of a journal"
_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
_NULL = Raw(b"null")


class _Skipped(Struct, frozen=True, gc=False):
    """An entry that only counts."""


class _Entries(Struct, frozen=True, gc=False):
    """Which entries a chunk has: the first one's number, and how many they are."""

    seq: Annotated[int, Meta(ge=1)]
    entries: Annotated[list[_Skipped], Meta(min_length=1)]

    @property
    def last(self) -> int:
        return self.seq + len(self.entries) - 1


class _LineFields(Struct, frozen=True, gc=False):
    """What the journal needs to know of a line."""

    facts: _Entries
    sum: str
    end: Annotated[int, Meta(ge=0)] = 0


class _Parts(Struct, frozen=True, gc=False):
    """The parts of a chunk, as the bytes that they were written with."""

    facts: Raw
    sum: str
    details: Raw = _NULL


class _AllParts(_Parts, frozen=True, gc=False):
    said: Raw = _NULL


_decode_fields = msgspec.json.Decoder(_LineFields).decode
_decode_parts = msgspec.json.Decoder(_Parts).decode_lines
_decode_all_parts = msgspec.json.Decoder(_AllParts).decode_lines
_decode_entries = msgspec.json.Decoder(_Entries).decode_lines


class StoredLine(NamedTuple):
    """A line in the file, and the `seq` of its first and last entry: 0 where it cannot be read.

    `ends` is how many entries the commit has that it ends, or 0.
    """

    offset: int
    stored: bytes
    first: int
    last: int
    sum: str
    ends: int

    @property
    def end(self) -> int:
        """Where the next line begins."""
        return self.offset + len(self.stored)


class Damage(Exception):
    """The line at `offset` is damaged, and is not part of the last commit."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset, self.why = offset, why


# -- writing -------------------------------------------------------------------------------------------


def encode_commit(chunks: Sequence[Chunk], after: int) -> list[bytes]:
    """The lines of one commit, which follows entry `after`."""
    return [encode_line(chunk, chunk.seq - after if chunk is chunks[-1] else 0) for chunk in chunks]


def encode_line(chunk: Chunk, ends: int) -> bytes:
    """A chunk as it is stored. `ends`: how many entries the commit has that it ends, or 0."""
    line = b"".join(
        (
            b'{"facts":%b,"sum":"%b"' % (chunk.facts, chunk.sum.encode()),
            b"" if chunk.details is None else b',"details":%b' % chunk.details,
            b"" if chunk.said is None else b',"said":%b' % chunk.said,
            b',"end":%d}' % ends if ends else b"}",
        )
    )
    # It would make two lines of one.
    assert b"\n" not in line
    return line + b"\n"


# -- reading -------------------------------------------------------------------------------------------


def parse(stored: bytes, offset: int) -> StoredLine:
    """What the journal needs to know of a line; whether it can be read at all."""
    if stored.endswith(b"}\n"):
        try:
            fields = _decode_fields(stored)
            entries = fields.facts
            return StoredLine(offset, stored, entries.seq, entries.last, fields.sum, fields.end)
        except _ERRORS:
            pass
    return StoredLine(offset, stored, 0, 0, "", 0)


def split(data: bytes, offset: int) -> list[StoredLine]:
    """The lines in a piece of the file that begins at `offset`; the last one may lack its end."""
    return list(_iter_lines(data, offset))


def _iter_lines(data: bytes, offset: int) -> Iterator[StoredLine]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield parse(data[start:end], offset + start)
        start = end


def expect(line: StoredLine, seq: int) -> None:
    """Raise `Damage` if it is not the line that begins with this entry."""
    if line.first != seq:
        why = f"expected entry {seq}, found entry {line.first}" if line.first else UNREADABLE
        raise Damage(line.offset, why)


def read_page(data: bytes, offset: int, count: int, seq: int, *, said: bool) -> tuple[Page, int]:
    """The page of these lines, and their last entry.

    They are `count`, begin at `offset` of the file, and with entry `seq`. Raises `Damage`.
    """
    try:
        parts: Sequence[_Parts]
        words = None
        if said:
            parts = whole = _decode_all_parts(data)
            words = b"\n".join([one.said for one in whole])
        else:
            parts = _decode_parts(data)
        page = Page(
            count=len(parts),
            sums="\n".join([one.sum for one in parts]).encode(),
            facts=b"\n".join([one.facts for one in parts]),
            details=b"\n".join([one.details for one in parts]),
            said=words,
        )
        last = seq - 1
        for one in _decode_entries(page.facts):
            if one.seq != last + 1:
                break
            last += len(one.entries)
        else:
            if page.count == count:
                return page, last
    except _ERRORS:
        pass
    # One by one, to find out which it is.
    for line in _iter_lines(data, offset):
        expect(line, seq)
        seq = line.last + 1
    raise Damage(offset, UNREADABLE)


def read_chunk(line: StoredLine) -> Chunk:
    """The chunk of a line that can be read."""
    (parts,) = _decode_all_parts(line.stored)
    return Chunk(line.last, parts.sum, bytes(parts.facts), _part(parts.details), _part(parts.said))


def _part(raw: Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def find_last_whole(lines: Sequence[StoredLine], seq: int | None) -> StoredLine | None:
    """The line that ends the last whole commit, or None if there is none.

    The lines follow the end of a commit (whose last entry is `seq`, if that is known) and go on to the end
    of the file. Raises `Damage` where the damage cannot be the last commit's.
    """
    last: StoredLine | None = None
    commit: list[StoredLine] = []
    for number, line in enumerate(lines, start=1):
        commit.append(line)
        if not line.ends:
            continue
        flaw = _find_flaw(commit, seq)
        if flaw is None:
            last, seq, commit = line, line.last, []
        elif number < len(lines) or _is_of_an_earlier_commit(flaw, commit, seq):
            raise Damage(commit[flaw].offset, "neither readable nor part of the last commit")
    return last


def _is_of_an_earlier_commit(flaw: int, commit: Sequence[StoredLine], seq: int | None) -> bool:
    """Whether the line that ends the last commit tells that this one was not part of it."""
    if flaw == len(commit) - 1:
        return False
    # By number, not by place: where a newline is lost, there are fewer lines than there were.
    first = _first_of_commit(commit[-1])
    if seq is not None:
        return first > seq + 1
    after = next(line.first for line in commit[flaw + 1 :] if line.first)
    return after <= first or 0 < commit[0].first < first


def _find_flaw(commit: Sequence[StoredLine], seq: int | None) -> int | None:
    """Which line of the commit is the first that is not as it was written, if any."""
    for index, line in enumerate(commit):
        if not line.first or (seq is not None and line.first != seq + 1):
            return index
        seq = line.last
    first = _first_of_commit(commit[-1])
    if commit[0].first == first:
        return None
    # Either the count is wrong, or these are two commits, the first of which has lost its mark.
    return next((index for index, line in enumerate(commit[1:]) if line.first == first), len(commit) - 1)


def _first_of_commit(last: StoredLine) -> int:
    """The first entry of the commit that this line ends."""
    return last.last - last.ends + 1

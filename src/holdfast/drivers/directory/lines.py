"""Lines as they are stored, and which of them belong to whole commits.

    {"v":1,"seq":8,…,"sum":"…"}
    {"v":1,"seq":9,…,"sum":"…","end":2}

The second line ends a commit of two. A crash can tear only what was being appended, which is the last
commit: it counts as a whole or not at all. Damage anywhere else was not made by a crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from ...core.batch_decode import Lines
from ...errors import Corrupt

UNREADABLE = "not a line of a journal"
_MARK = re.compile(rb',"end":([1-9][0-9]{0,9})\}\n\Z')
_MARK_BYTES_MAX = len(b',"end":1234567890}\n')


class _Fields(msgspec.Struct):
    seq: int
    sum: str


_decode = msgspec.json.Decoder(_Fields).decode


class StoredLine(NamedTuple):
    """A line in the file. `seq` is 0 where it cannot be read; `ends` is how many lines the commit has that
    it ends, or 0."""

    offset: int
    stored: bytes
    seq: int
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


def join(lines: Sequence[bytes]) -> bytes:
    """The lines of one commit as they are stored."""
    for line in lines:
        # A newline would make two lines of one, and a mark in the caller's line would be taken for ours.
        assert line.endswith(b"}")
        assert b"\n" not in line
        assert not _MARK.search(line[-_MARK_BYTES_MAX:] + b"\n")
    return b"".join([*(line + b"\n" for line in lines[:-1]), marked(lines[-1], len(lines))])


def marked(line: bytes, count: int) -> bytes:
    """The line as the last one of a commit of `count`."""
    return b'%b,"end":%d}\n' % (line[:-1], count)


def unmarked(stored: bytes) -> bytes:
    """The line as it was given."""
    found = _find_mark(stored)
    return stored[: found.start()] + b"}" if found else stored[:-1]


def _find_mark(stored: bytes) -> re.Match[bytes] | None:
    return _MARK.search(stored, max(0, len(stored) - _MARK_BYTES_MAX))


def parse(stored: bytes, offset: int) -> StoredLine:
    """What the journal needs to know of a line; whether it can be read at all."""
    if not stored.endswith(b"}\n"):
        return StoredLine(offset, stored, 0, "", 0)
    try:
        fields = _decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return StoredLine(offset, stored, 0, "", 0)
    mark = _find_mark(stored)
    return StoredLine(offset, stored, fields.seq, fields.sum, int(mark[1]) if mark else 0)


def split(data: bytes, offset: int) -> list[StoredLine]:
    """The lines in a piece of the file that begins at `offset`; the last one may lack its end."""
    lines = []
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        lines.append(parse(data[start:end], offset + start))
        start = end
    return lines


def expect(line: StoredLine, seq: int) -> None:
    """Raise `Damage` if it is not the line of this entry."""
    if line.seq != seq:
        why = f"expected entry {seq}, found entry {line.seq}" if line.seq else UNREADABLE
        raise Damage(line.offset, why)


class Stretch(Lines):
    """Lines as they stand in the file, from entry `seq` on, which begins at `offset`.

    They are looked at when they are taken apart. A caller that decodes them at once sees by that alone that
    they are lines and in order, and need not know what `end` is; if they are not, taking them apart says so.
    """

    def __init__(
        self, stored: Sequence[bytes], seq: int, offset: int, corrupt: Callable[[Damage], Corrupt]
    ) -> None:
        super().__init__(b"".join(stored), len(stored))
        self._seq, self._offset, self._corrupt = seq, offset, corrupt

    @cached_property
    def _apart(self) -> list[bytes]:
        lines = split(self.joined, self._offset)
        try:
            for seq, line in enumerate(lines, start=self._seq):
                expect(line, seq)
        except Damage as damage:
            raise self._corrupt(damage) from damage
        return [unmarked(line.stored) for line in lines]


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
            last, seq, commit = line, line.seq, []
        elif number < len(lines) or _is_of_an_earlier_commit(flaw, commit, seq):
            raise Damage(commit[flaw].offset, "neither readable nor part of the last commit")
    return last


def _is_of_an_earlier_commit(flaw: int, commit: Sequence[StoredLine], seq: int | None) -> bool:
    """Whether the line that ends the last commit tells that this one was not part of it."""
    last = commit[-1]
    if flaw == len(commit) - 1:
        return False
    if seq is None:
        return flaw < len(commit) - last.ends
    # By number, not by place: where a newline is lost, there are fewer lines than there were.
    return last.seq - last.ends > seq


def _find_flaw(commit: Sequence[StoredLine], seq: int | None) -> int | None:
    """Which line of the commit is the first that is not as it was written, if any."""
    for index, line in enumerate(commit):
        if not line.seq or (seq is not None and line.seq != seq + 1):
            return index
        seq = line.seq
    return None if commit[-1].ends == len(commit) else len(commit) - 1

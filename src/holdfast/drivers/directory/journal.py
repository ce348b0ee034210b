"""One journal file: where its last whole commit ends, appending to it, and reading from the middle.

A commit holds the session's lock alone. A reader takes it only to look at bytes it has not seen: they may
belong to a commit that is not synced yet, and a reader must be able to rely on a chunk.

Nothing is kept open. What is remembered of a file (`_Known`) is believed as long as the bytes before its
end are the same: they hold the last chunk's sum, which no other file has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import msgspec
from msgspec.structs import replace

from ...core.codec import EMPTY_PAGE, Chunk, Page
from ...errors import Corrupt, StoreFailed
from ...system import files
from ...system.file_locks import FileLock
from ...system.files import put, sync_data, sync_directory, write_all
from ..contract import Erasure, RunMark
from .lines import (
    UNREADABLE,
    Damage,
    StoredLine,
    encode_commit,
    encode_line,
    expect,
    find_last_whole,
    parse,
    read_chunk,
    read_page,
    split,
)
from .run_index import RunIndex

# Two or three ordinary commits, so that one look at the end of the file is enough.
_TAIL_BYTES = 1 << 16
# Holds the last line's sum and its mark.
_SEEN_BYTES = 128
# A stretch so short that reading through it is cheaper than another probe.
_STRETCH_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 16
_BLOCK_BYTES_MAX = 1 << 22
# Readers that page through one journal at the same time, each from where it stopped.
_PLACES = 32


class Extent(NamedTuple):
    """The file up to the end of its last whole commit. `seq` is 0 if it has none."""

    inode: int
    end: int
    seq: int
    sum: str
    seen: bytes
    """The last bytes before `end`."""


class Least(NamedTuple):
    """What is known of a journal from elsewhere: whose it is, and an entry that it must have (0: none)."""

    uid: str
    seq: int
    sum: str


class _Known:
    """What is remembered of one file. All of it can be found again."""

    def __init__(self, inode: int) -> None:
        self.extent = Extent(inode, 0, 0, "", b"")
        self.places: tuple[tuple[int, int], ...] = ()
        """Where some lines begin: first entry and offset. Replaced, never changed: threads read it."""
        self.runs = RunIndex()

    def remember(self, seq: int, offset: int) -> None:
        self.places = (*self.places[1 - _PLACES :], (seq, offset))


class View(NamedTuple):
    """An open journal with at least one commit."""

    file: BinaryIO
    extent: Extent
    known: _Known


class JournalFile:
    """The journal of one session. Used by several threads at once."""

    def __init__(
        self,
        path: Path,
        lock: Path,
        find_first_seq: Callable[[], int | None],
        find_least: Callable[[], Least | None] | None = None,
    ) -> None:
        """`find_least` is asked under the lock, where the journal is to be compared with what it says."""
        self.path, self._lock, self._find_first_seq = path, lock, find_first_seq
        self._find_least = find_least
        self._known = _Known(0)

    @property
    def last_sum(self) -> str:
        """The sum that it ended with when it was last looked at here, or nothing."""
        return self._known.extent.sum

    def find_extent(self, *, locked: bool) -> Extent | None:
        """Where the last whole commit ends, or None if there is none. `locked`: the caller has the lock."""
        if not locked:
            with self.view() as view:
                return view.extent if view else None
        try:
            fd = files.open(self.path, files.O_RDONLY | files.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            self._check_absent()
            return None
        try:
            extent = self._catch_up(fd).extent
        finally:
            files.close(fd)
        return extent if extent.seq else None

    @contextmanager
    def view(self, *, locked: bool = False) -> Iterator[View | None]:
        """The open file and what is whole of it; None if there is no whole commit."""
        with ExitStack() as opened:
            known = self._known
            file = self._open(opened)
            if file and locked:
                known = self._catch_up(file.fileno())
            elif file and not _is_all_known(file.fileno(), known.extent):
                with FileLock(self._lock, shared=True):
                    # Opened anew: an erasure may have put another file in its place while we waited.
                    file = self._open(opened)
                    known = self._catch_up(file.fileno()) if file else known
            if file is None:
                self._check_absent()
            yield View(file, known.extent, known) if file and known.extent.seq else None

    def forget(self) -> None:
        """It was deleted: there is nothing that must be there."""
        self._known = _Known(0)

    def read(self, after: int, limit: int, *, said: bool) -> Page:
        """Up to `limit` chunks whose last entry comes after `after`."""
        try:
            return self._read(after, limit, said)
        except Corrupt:
            # Perhaps only what was remembered is wrong.
            self._known = _Known(0)
            return self._read(after, limit, said)

    def _read(self, after: int, limit: int, said: bool) -> Page:
        with self.view() as view:
            if view is None or after >= view.extent.seq or limit <= 0:
                return EMPTY_PAGE
            first = next(self.walk(view, after + 1), None)
            if first is None:
                return EMPTY_PAGE
            with self._named_damage(view):
                data, count = _read_lines(view.file.fileno(), first.offset, view.extent.end, limit)
                page, last = read_page(data, first.offset, count, first.first, said=said)
            if count == limit:
                view.known.remember(last + 1, first.offset + len(data))
            return page

    def walk(self, view: View, seq: int) -> Iterator[StoredLine]:
        """The whole commits' lines from the one with entry `seq` on, or from the first if that is later."""
        found, offset = self._find_place(view, seq)
        view.file.seek(offset)
        while offset < view.extent.end:
            line = parse(view.file.readline(), offset)
            try:
                expect(line, found)
            except Damage as damage:
                raise self._corrupt(view.file.fileno(), damage) from damage
            if line.last >= seq:
                yield line
            offset, found = line.end, line.last + 1

    def list_runs(self, view: View) -> list[tuple[str, int]]:
        """When each of its runs began, and with which entry, in no order."""
        with self._named_damage(view):
            view.known.runs.catch_up(view.file, view.extent.end, str(self.path))
            return view.known.runs.list_starts()

    def find_run(self, view: View, seq: int) -> tuple[str, Page, Page | None] | None:
        """The run that began with entry `seq`, and the chunks in which it begins and ends."""
        with self._named_damage(view):
            view.known.runs.catch_up(view.file, view.extent.end, str(self.path))
            return view.known.runs.find_pages(view.file, seq)

    def append(
        self, chunks: Sequence[Chunk], *, first_seq: int, after: Extent | None, runs: Sequence[RunMark]
    ) -> None:
        """Add a commit that begins with entry `first_seq`. Durable. Needs the lock, and a file.

        `after` is what was found under the same lock. What a crash left behind the last whole commit is put
        aside first. If the disk fails, the file is cut back to where it was.
        """
        lines = encode_commit(chunks, first_seq - 1)
        data = b"".join(lines)
        fd = files.open(self.path, files.O_RDWR | files.O_APPEND | files.O_CLOEXEC)
        try:
            known = self._known
            if known.extent is not after:
                known = self._catch_up(fd)
            extent = known.extent
            self._put_aside(fd, extent.end)
            try:
                write_all(fd, data)
                sync_data(fd)
                self._check_place(fd)
            except BaseException:
                self._take_back(fd, extent.end)
                raise
            seen = (extent.seen + data[-_SEEN_BYTES:])[-_SEEN_BYTES:]
            known.remember(first_seq, extent.end)
            lengths = {chunk.seq: len(line) for chunk, line in zip(chunks, lines, strict=True)}
            known.runs.add_commit(runs, lengths, extent.end)
            last = chunks[-1]
            known.extent = Extent(extent.inode, extent.end + len(data), last.seq, last.sum, seen)
        finally:
            files.close(fd)

    def _check_place(self, fd: int) -> None:
        """Refuse to acknowledge what cannot be found again: the file was moved or removed meanwhile."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if files.is_same(self.path, fd):
                return
        raise StoreFailed(
            f"{self.path}: the file was removed, renamed or replaced while a commit was written to it. Put "
            "it back; then it is safe to try again."
        )

    def rewrite(self, erased: Mapping[int, Erasure], scratch: Path, *, last: int | None = None) -> None:
        """Replace details and what was said of chunks, by their `seq`; leave out what comes after `last`.

        Durable, all or nothing. Needs the lock.
        """
        with self.view(locked=True) as view:
            if view is None:
                raise Corrupt(str(self.path), "it is missing")
            put(self.path, self._rewritten(view, erased, last), scratch)
        self._known = _Known(0)

    def _rewritten(self, view: View, erased: Mapping[int, Erasure], last: int | None) -> Iterator[bytes]:
        first_of_commit = 0
        for line in self.walk(view, 0):
            if last is not None and line.last > last:
                return
            first_of_commit = first_of_commit or line.first
            chunk = read_chunk(line)
            if (erasure := erased.get(line.last)) is not None:
                chunk = replace(chunk, details=erasure.details, said=erasure.said)
            if line.ends or line.last == last:
                yield encode_line(chunk, line.last - first_of_commit + 1)
                first_of_commit = 0
            else:
                yield encode_line(chunk, 0)

    def _open(self, opened: ExitStack) -> BinaryIO | None:
        try:
            return opened.enter_context(files.open_binary(self.path, "rb", _BUFFER_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _catch_up(self, fd: int) -> _Known:
        """What is known of the file, after a look at what was added to it."""
        state = files.stat(fd)
        known = self._known
        if not _goes_on_from(fd, state, known.extent):
            known = _Known(state.st_ino)
        elif state.st_size == known.extent.end:
            return known
        try:
            last = self._find_last(fd, known.extent, state.st_size)
        except Damage as damage:
            raise self._corrupt(fd, damage) from damage
        if last:
            # The writer of this may have died, or met a bad disk, before it was synced.
            sync_data(fd)
            start = max(0, last.end - _SEEN_BYTES)
            if known.extent.seq:
                known.remember(known.extent.seq + 1, known.extent.end)
            seen = _read_range(fd, start, last.end)
            known.extent = Extent(state.st_ino, last.end, last.last, last.sum, seen)
        self._compare(fd, known.extent)
        self._known = known
        return known

    def _compare(self, fd: int, extent: Extent) -> None:
        """Refuse a journal that is not this session's, or lacks something that was acknowledged.

        What a crash tears was never acknowledged, so it is cut; everything else that is missing is damage.
        """
        least = self._find_least() if self._find_least else None
        if least is None:
            return
        if extent.seq < least.seq:
            self._refuse(
                f"it ends with entry {extent.seq}, but {least.seq} were acknowledged: what comes last is "
                "missing or damaged"
            )
        if extent.seq == least.seq and extent.seq and extent.sum != least.sum:
            self._refuse(f"entry {extent.seq} is not the one that was acknowledged under this number")
        is_new = extent.seq and extent.inode != self._known.extent.inode
        if is_new and _find_uid(fd) != least.uid:
            self._refuse("it is the journal of another session")

    def _check_absent(self) -> None:
        """Refuse a session whose journal alone is missing."""
        least = self._find_least() if self._find_least else None
        if least is not None and least.seq:
            self._refuse(f"it is missing, but {least.seq} entries were acknowledged")

    def _refuse(self, why: str) -> NoReturn:
        raise Corrupt(str(self.path), why)

    def _find_last(self, fd: int, extent: Extent, size: int) -> StoredLine | None:
        """The line that ends the last whole commit behind the known ones, if there is one.

        Begins at the end of the file, so that the cost is that of the last commits, not that of the journal.
        """
        window = _TAIL_BYTES
        while True:
            start = max(extent.end, size - window)
            lines = split(_read_range(fd, start, size), start)
            if start == extent.end:
                return find_last_whole(lines, extent.seq or self._find_seq_before())
            # The first line may lack its beginning. The first that ends a commit is where to begin.
            mark = next((index for index, line in enumerate(lines) if index and line.ends), None)
            if mark is not None and (last := find_last_whole(lines[mark + 1 :], lines[mark].last)):
                return last
            window *= 4

    def _find_seq_before(self) -> int | None:
        first_seq = self._find_first_seq()
        return first_seq - 1 if first_seq is not None else None

    def _find_place(self, view: View, seq: int) -> tuple[int, int]:
        """The line with entry `seq` or one not far before it, as first entry and offset; the first line if
        that is later."""
        places = [place for place in view.known.places if place[1] < view.extent.end]
        low = max((place for place in places if place[0] <= seq), default=None)
        if low is None:
            view.file.seek(0)
            first = parse(view.file.readline(), 0)
            if not first.first:
                raise self._corrupt(view.file.fileno(), Damage(0, UNREADABLE))
            low = first.first, 0
        high = min((offset for found, offset in places if found > seq), default=view.extent.end)
        return _probe(view.file, low, high, seq)

    def _put_aside(self, fd: int, end: int) -> None:
        """Keep what lies behind `end` in a file of its own, then cut it off."""
        torn = files.stat(fd).st_size - end
        if torn <= 0:
            return
        number = 1
        while files.exists(aside := self.path.with_name(f"torn-{end}-{number}")):
            number += 1
        with files.open_binary(aside, "xb") as file:
            file.write(_read_range(fd, end, end + torn))
            file.flush()
            sync_data(file.fileno())
        sync_directory(self.path.parent)
        files.truncate(fd, end)

    def _take_back(self, fd: int, end: int) -> None:
        """Cut off what a failed commit wrote, so that no reader takes it for durable."""
        # If even that fails, the commit may be there in the end: its outcome is unknown, as the error says.
        with suppress(OSError):
            files.truncate(fd, end)
        self._known = _Known(0)

    @contextmanager
    def _named_damage(self, view: View) -> Iterator[None]:
        """Name damage by the file and the number of its line."""
        try:
            yield
        except Damage as damage:
            raise self._corrupt(view.file.fileno(), damage) from damage

    def _corrupt(self, fd: int, damage: Damage) -> Corrupt:
        number = 1
        for start in range(0, damage.offset, _BUFFER_BYTES):
            number += _read_range(fd, start, min(start + _BUFFER_BYTES, damage.offset)).count(b"\n")
        return Corrupt(str(self.path), damage.why, line=number)


class _Opening(msgspec.Struct):
    """The line that a journal begins with."""

    class OpeningFacts(msgspec.Struct):
        class OpeningEntry(msgspec.Struct):
            class OpeningBody(msgspec.Struct):
                uid: str = ""

            body: OpeningBody

        entries: list[OpeningEntry]

    facts: OpeningFacts


_decode_opening = msgspec.json.Decoder(_Opening).decode


def _find_uid(fd: int) -> str | None:
    """Whose journal the file is, by its first line."""
    data, size = b"", _TAIL_BYTES
    while b"\n" not in data and len(data) < size:
        data, size = _read_range(fd, 0, size), 4 * size
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        return _decode_opening(data.partition(b"\n")[0]).facts.entries[0].body.uid
    return None


def _is_all_known(fd: int, extent: Extent) -> bool:
    state = files.stat(fd)
    return state.st_size == extent.end and _goes_on_from(fd, state, extent)


def _goes_on_from(fd: int, state: files.StatResult, extent: Extent) -> bool:
    """Whether this is the file that `extent` is about, with perhaps more at its end."""
    if state.st_ino != extent.inode or state.st_size < extent.end:
        return False
    return _read_range(fd, extent.end - len(extent.seen), extent.end) == extent.seen


def _read_range(fd: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`, or to the end of the file."""
    parts = []
    # One call reads two gigabytes at most.
    while start < end and (part := files.read_at(fd, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _read_lines(fd: int, start: int, end: int, limit: int) -> tuple[bytes, int]:
    """Up to `limit` lines from the one at `start` on, none of them behind `end`, and how many they are."""
    parts: list[bytes] = []
    count, size = 0, _BUFFER_BYTES
    while start < end and count < limit and (part := _read_range(fd, start, min(end, start + size))):
        found = part.count(b"\n")
        if count + found >= limit:
            cut = 0
            for _ in range(limit - count):
                cut = part.index(b"\n", cut) + 1
            part, found = part[:cut], limit - count
        parts.append(part)
        # In larger and larger steps: how long the lines are is not known.
        start, count, size = start + len(part), count + found, min(2 * size, _BLOCK_BYTES_MAX)
    return b"".join(parts), count


def _probe(file: BinaryIO, low: tuple[int, int], high: int, seq: int) -> tuple[int, int]:
    """The line with entry `seq` or one not far before it, as first entry and offset, found by halving.

    Begins with a line `low` at or before it, and an offset `high` behind it. Stops early at damage: who
    walks on from there will find it.
    """
    while high - low[1] > _STRETCH_BYTES:
        middle = (low[1] + high) // 2
        # From the byte before, so that a line that begins exactly there is not skipped.
        file.seek(middle - 1)
        file.readline()
        offset = file.tell()
        if offset >= high:
            high = middle
            continue
        found = parse(file.readline(), offset).first
        if not found:
            break
        if found <= seq:
            low = found, offset
        else:
            high = offset
    return low

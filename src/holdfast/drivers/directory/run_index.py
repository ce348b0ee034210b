"""Where the runs of a journal begin and end, so that listing them reads each journal once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from ...core.codec import Page, timestamp
from ...core.entries import KIND_OF, Body, RunStarted
from ...core.fold import RUN_ENDS
from ...core.pages import FactsDecoder
from ...errors import Corrupt
from ...system import threads
from ..contract import RunMark
from .lines import UNREADABLE, Damage, StoredLine, parse, read_chunk

_HINT = b'"kind":"run.'
_KINDS: tuple[type[Body], ...] = (RunStarted, *RUN_ENDS)
_decoder = FactsDecoder({KIND_OF[body]: body for body in _KINDS})


class _Range(NamedTuple):
    offset: int
    length: int


class _Run(NamedTuple):
    run: str
    at: str
    started: _Range
    ended: _Range | None


class RunIndex:
    """The runs that one file begins, as far as it was read."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
        """By the entry that begins it."""
        self._begins: dict[str, int] = {}
        self._upto = 0
        self._lock = threads.Lock()

    def catch_up(self, file: BinaryIO, end: int, where: str) -> None:
        """Read what is new up to `end`. Raises `Damage`."""
        with self._lock:
            file.seek(self._upto)
            while self._upto < end:
                stored = file.readline()
                if not stored:
                    raise Damage(self._upto, "the file ends before its last commit does")
                # Quick to refuse: few chunks have a run that begins or ends, and only those are decoded.
                if _HINT in stored:
                    line = parse(stored, self._upto)
                    for mark in _read_marks(line, where):
                        self._add(mark, _Range(line.offset, len(stored)))
                self._upto += len(stored)

    def add_commit(self, marks: Sequence[RunMark], lengths: Mapping[int, int], offset: int) -> None:
        """Take over what a commit says of its chunks, which begin at `offset` and have these lengths.

        If what comes before them was not read yet, they are read with it.
        """
        with self._lock:
            if self._upto != offset:
                return
            by_chunk: dict[int, list[RunMark]] = {}
            for mark in marks:
                by_chunk.setdefault(mark.chunk, []).append(mark)
            for chunk, length in lengths.items():
                for mark in by_chunk.get(chunk, ()):
                    self._add(mark, _Range(self._upto, length))
                self._upto += length

    def _add(self, mark: RunMark, place: _Range) -> None:
        if not mark.ended:
            self._begins[mark.run] = mark.seq
            self._runs[mark.seq] = _Run(mark.run, mark.at, place, None)
        elif (seq := self._begins.get(mark.run)) is not None:
            # A fork may end a run that its origin began: that one is listed with the origin.
            self._runs[seq] = self._runs[seq]._replace(ended=place)

    def list_starts(self) -> list[tuple[str, int]]:
        """When each run began, and with which entry, in no order."""
        with self._lock:
            return [(run.at, seq) for seq, run in self._runs.items()]

    def find_pages(self, file: BinaryIO, seq: int) -> tuple[str, Page, Page | None] | None:
        """The run that began with entry `seq`, and the chunks in which it begins and ends."""
        with self._lock:
            run = self._runs.get(seq)
        if run is None:
            return None
        return run.run, _read(file, run.started), _read(file, run.ended) if run.ended else None


def _read_marks(line: StoredLine, where: str) -> Iterator[RunMark]:
    """The runs that begin or end in a chunk. Raises `Damage`."""
    try:
        for chunk in _decoder.decode(_page_of(line), where):
            for entry in chunk.entries:
                ended = entry.body.__class__ in RUN_ENDS
                if entry.run is not None and (ended or entry.body.__class__ is RunStarted):
                    at = timestamp(entry.at)
                    yield RunMark(run=entry.run, ended=ended, at=at, seq=entry.seq, chunk=chunk.last)
    except Corrupt as error:
        raise Damage(line.offset, UNREADABLE) from error


def _read(file: BinaryIO, place: _Range) -> Page:
    file.seek(place.offset)
    return _page_of(parse(file.read(place.length), place.offset))


def _page_of(line: StoredLine) -> Page:
    """The page of one chunk, without what was said. Raises `Damage`."""
    if not line.first:
        raise Damage(line.offset, UNREADABLE)
    return Page.of([read_chunk(line)], said=False)

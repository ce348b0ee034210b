"""Where the runs of a journal begin and end, so that listing them reads each journal once."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

import msgspec

from ...system import threads
from .lines import Damage, unmarked

_HINT = b'"kind":"run.'


class _Place(NamedTuple):
    offset: int
    length: int


class _Run(NamedTuple):
    at: str
    started: _Place
    ended: _Place | None


class _RunFields(msgspec.Struct):
    at: str
    kind: str
    seq: int
    run: str | None = None


_decode = msgspec.json.Decoder(_RunFields).decode


class RunIndex:
    """The runs that one file begins, as far as it was read."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
        """By the `seq` of the line that begins it."""
        self._begins: dict[str | None, int] = {}
        self._upto = 0
        self._lock = threads.Lock()

    def catch_up(self, file: BinaryIO, end: int) -> None:
        """Read what is new up to `end`. Raises `Damage`."""
        with self._lock:
            file.seek(self._upto)
            while self._upto < end:
                stored = file.readline()
                if not stored:
                    raise Damage(self._upto, "the file ends before its last commit does")
                # Quick to refuse: few lines are about runs, and only those need a closer look.
                if _HINT in stored:
                    self._add(stored)
                self._upto += len(stored)

    def _add(self, stored: bytes) -> None:
        try:
            fields = _decode(stored)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Damage(self._upto, f"not a line of a journal ({error})") from error
        place = _Place(self._upto, len(stored))
        if fields.kind == "run.started":
            self._begins[fields.run] = fields.seq
            self._runs[fields.seq] = _Run(fields.at, place, None)
        elif fields.kind.startswith("run.") and fields.run in self._begins:
            # A fork may end a run that its origin began: that one is listed with the origin.
            seq = self._begins[fields.run]
            self._runs[seq] = self._runs[seq]._replace(ended=place)

    def list_starts(self) -> list[tuple[str, int]]:
        """When each run began, and the `seq` of that line, in no order."""
        with self._lock:
            return [(run.at, seq) for seq, run in self._runs.items()]

    def find_lines(self, file: BinaryIO, seq: int) -> tuple[bytes, bytes | None] | None:
        """The lines that begin and end the run that began at `seq`."""
        with self._lock:
            run = self._runs.get(seq)
        if run is None:
            return None
        return _read(file, run.started), _read(file, run.ended) if run.ended else None


def _read(file: BinaryIO, place: _Place) -> bytes:
    file.seek(place.offset)
    return unmarked(file.read(place.length))

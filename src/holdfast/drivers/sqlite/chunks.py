"""Reading chunks: pages of a journal, and the chunks in which runs begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import apsw

from ...core.codec import EMPTY_PAGE, Page
from ...errors import Corrupt
from ...ids import SessionId
from ..contract import RunChunks, RunCursor


def _part(column: str) -> str:
    """The SQL of a part of a chunk: NULL for a value that is no text, which SQLite would convert."""
    return f"CASE typeof({column}) WHEN 'text' THEN {column} END"


def _optional_part(column: str) -> str:
    """The same for a part that may be empty."""
    return f"CASE typeof({column}) WHEN 'text' THEN {column} WHEN 'null' THEN 'null' END"


_PARTS: Final = (_part("sum"), _part("facts"), _optional_part("details"))
_SAID: Final = _optional_part("said")
_FROM: Final = "FROM chunks WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"


def _page_query(parts: Sequence[str], columns: str) -> str:
    """For a page in one row: getting a row from SQLite takes longer than joining it to others there."""
    joined = [f"CAST(group_concat({part}, char(10)) AS BLOB)" for part in parts]
    return f"SELECT count(*), {', '.join(joined)} FROM (SELECT {columns} {_FROM})"


def _rows_query(parts: Sequence[str]) -> str:
    return f"SELECT {', '.join(f'CAST({part} AS BLOB)' for part in parts)} {_FROM}"


_PAGE: Final = _page_query(_PARTS, "sum, facts, details")
_PAGE_SAID: Final = _page_query((*_PARTS, _SAID), "sum, facts, details, said")
_ROWS: Final = _rows_query(_PARTS)
_ROWS_SAID: Final = _rows_query((*_PARTS, _SAID))


def _parts_of(table: str) -> str:
    parts = (_part(f"{table}.sum"), _part(f"{table}.facts"), _optional_part(f"{table}.details"))
    return ", ".join(f"CAST({part} AS BLOB)" for part in parts)


_RUNS: Final = f"""
    SELECT runs.run, runs.at, runs.session, runs.seq, runs.ended, {_parts_of("first")}, {_parts_of("last")}
    FROM (
        SELECT run, at, session, seq, started, ended FROM run_chunks
        WHERE {{session}} AND (at, session, seq) > (:at, :after, :seq)
        ORDER BY at, session, seq LIMIT :limit
    ) AS runs
    LEFT JOIN chunks AS first ON first.session = runs.session AND first.seq = runs.started
    LEFT JOIN chunks AS last ON last.session = runs.session AND last.seq = runs.ended
    ORDER BY runs.at, runs.session, runs.seq
"""


def read_page(
    db: apsw.Connection, session: SessionId, after: int, limit: int, *, said: bool, where: str
) -> Page:
    """Up to `limit` chunks after entry `after`, or `Corrupt`."""
    wanted = (session, after, limit)
    place = f"{where}, session {session!r}, after entry {after}"
    count: int
    parts: list[Any]
    try:
        count, *parts = db.execute(_PAGE_SAID if said else _PAGE, wanted).get
    except apsw.TooBigError:  # Together they exceed what SQLite takes as one value.
        rows: list[Any] = db.execute(_ROWS_SAID if said else _ROWS, wanted).fetchall()
        count = len(rows)
        parts = [_join(part, place) for part in zip(*rows, strict=True)]
    return _make_page(count, parts, place) if count else EMPTY_PAGE


def _join(lines: Sequence[bytes | None], place: str) -> bytes:
    if None in lines:
        raise _damaged(place)
    return b"\n".join(cast(Sequence[bytes], lines))


def _make_page(count: int, parts: Sequence[Any], place: str) -> Page:
    for part in parts:
        if not isinstance(part, bytes) or _count_lines(part) != count:
            raise _damaged(place)
    sums, facts, details, *said = parts
    if not sums.isascii():
        raise _damaged(place)
    return Page(count, sums, facts, details, said[0] if said else None)


def _damaged(place: str) -> Corrupt:
    return Corrupt(place, "a part of a chunk is not one line of text")


def _count_lines(part: bytes) -> int:
    # Not `count`, which looks at each byte by itself.
    lines, at = 1, part.find(b"\n")
    while at >= 0:
        lines, at = lines + 1, part.find(b"\n", at + 1)
    return lines


def list_runs(
    db: apsw.Connection, session: SessionId | None, after: RunCursor | None, limit: int, *, where: str
) -> list[RunChunks]:
    """Runs of one session or of all, or `Corrupt`."""
    at, name, seq = after or ("", "", 0)
    bindings = {"session": session, "at": at, "after": name, "seq": seq, "limit": limit}
    query = _RUNS.format(session="TRUE" if session is None else "session = :session")
    rows: list[Any] = db.execute(query, bindings).fetchall()
    return [_make_run(row, where) for row in rows]


def _make_run(row: Sequence[Any], where: str) -> RunChunks:
    run, at, session, seq, ended, *parts = row
    place = f"{where}, session {session!r}, run {run!r}"
    if not (type(seq) is int and isinstance(at, str) and isinstance(run, str) and isinstance(session, str)):
        raise Corrupt(place, "the row of a run is not of the right types")
    return RunChunks(
        run,
        RunCursor(at, SessionId(session), seq),
        _make_page(1, parts[:3], place),
        None if ended is None else _make_page(1, parts[3:], place),
    )

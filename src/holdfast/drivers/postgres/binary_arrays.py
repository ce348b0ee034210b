"""Arrays in the server's binary format: many rows in one parameter for each column.

psycopg writes a list as text, element by element and quoted. For a batch of a thousand lines, that would take
longer than the network.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_TEXT, _INT8 = 25, 20
_TEXTS, _INT8S = 1009, 1016
_header = struct.Struct(">iiiii").pack
_table_header = struct.Struct(">iiiiiii").pack
_empty = struct.Struct(">iii").pack
_length = struct.Struct(">i").pack
_number = struct.Struct(">iq").pack
_NULL = _length(-1)

Text: TypeAlias = bytes | str | None


class TextArray:
    """An array of texts, given in UTF-8 or as strings; None is NULL."""

    __slots__ = ("data",)

    def __init__(self, items: Collection[Text]) -> None:
        self.data = _array(_TEXT, len(items), _write(items))


class TextTable:
    """Columns of texts, all of one length: an array of two dimensions, with a row for each column."""

    __slots__ = ("data",)

    def __init__(self, columns: Iterable[Sequence[Text]]) -> None:
        table = list(columns)
        if not table or not table[0]:
            self.data = _empty(0, 0, _TEXT)
            return
        header = _table_header(2, 1, _TEXT, len(table), 1, len(table[0]), 1)
        self.data = b"".join((header, *_write(chain.from_iterable(table))))


class IntArray:
    """An array of integers."""

    __slots__ = ("data",)

    def __init__(self, items: Iterable[int]) -> None:
        parts = [_number(8, item) for item in items]
        self.data = _array(_INT8, len(parts), parts)


def _write(texts: Iterable[Text]) -> list[bytes]:
    parts: list[bytes] = []
    for text in texts:
        if text is None:
            parts.append(_NULL)
            continue
        data = text.encode() if isinstance(text, str) else text
        parts += (_length(len(data)), data)
    return parts


def _array(element: int, count: int, parts: list[bytes]) -> bytes:
    if not count:
        return _empty(0, 0, element)
    # One dimension, NULLs allowed, numbered from 1.
    return b"".join((_header(1, 1, element, count, 1), *parts))


class _TextArrayDumper(Dumper):
    format = Format.BINARY
    oid = _TEXTS

    def dump(self, obj: TextArray) -> Buffer:
        return obj.data


class _IntArrayDumper(_TextArrayDumper):
    oid = _INT8S


def register_dumpers(connection: Connection[tuple[object, ...]]) -> None:
    """Make a connection accept these arrays as parameters. Applications have no values of these types."""
    connection.adapters.register_dumper(TextArray, _TextArrayDumper)
    connection.adapters.register_dumper(IntArray, _IntArrayDumper)

"""Columns of many rows as one parameter each: arrays in the server's binary format.

psycopg writes a list as text, element by element and quoted; a batch of a thousand lines would spend more
time on that than on the network.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_TEXT, _INT8 = 25, 20
_TEXTS, _INT8S = 1009, 1016
_header = struct.Struct(">iiiii").pack
_empty = struct.Struct(">iii").pack
_length = struct.Struct(">i").pack
_number = struct.Struct(">iq").pack
_NULL = _length(-1)


class Texts:
    """Texts, given in UTF-8 or as strings; None is NULL."""

    __slots__ = ("data",)

    def __init__(self, items: Iterable[bytes | str | None]) -> None:
        parts: list[bytes] = []
        count = 0
        for item in items:
            count += 1
            if item is None:
                parts.append(_NULL)
                continue
            data = item.encode() if isinstance(item, str) else item
            parts += (_length(len(data)), data)
        self.data = _array(_TEXT, count, parts)


class Numbers:
    """Whole numbers."""

    __slots__ = ("data",)

    def __init__(self, items: Iterable[int]) -> None:
        parts = [_number(8, item) for item in items]
        self.data = _array(_INT8, len(parts), parts)


def _array(element: int, count: int, parts: list[bytes]) -> bytes:
    if not count:
        return _empty(0, 0, element)
    # One dimension, NULLs allowed, numbered from 1.
    return b"".join((_header(1, 1, element, count, 1), *parts))


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = _TEXTS

    def dump(self, obj: Texts) -> Buffer:
        return obj.data


class _NumbersDumper(_TextsDumper):
    oid = _INT8S


def teach(connection: Connection[tuple[object, ...]]) -> None:
    """Make a connection take both as parameters. Nobody else has values of these types."""
    connection.adapters.register_dumper(Texts, _TextsDumper)
    connection.adapters.register_dumper(Numbers, _NumbersDumper)

"""Claims: records in the store that are changed by compare-and-swap.

A claim is found by the digest of its key, which may be of any length, and stored as readable text.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from ..contract import ClaimChange, Claimed, Done, Outcome
from .connections import Connection
from .statements import Statements

_MARK: Final = "\x01"
_FIND: Final = "SELECT record FROM $schema.claims WHERE digest = %(digest)s"
_LIST: Final = "SELECT key, record FROM $schema.claims WHERE digest > %s ORDER BY digest LIMIT %s"
_ADD: Final = """
    INSERT INTO $schema.claims (digest, key, record) VALUES (%(digest)s, %(key)s, %(record)s)
    ON CONFLICT DO NOTHING RETURNING $durable
"""
_CHANGE: Final = """
    UPDATE $schema.claims SET record = %(record)s
    WHERE digest = %(digest)s AND record = %(expect)s RETURNING $durable
"""
_FREE: Final = (
    "DELETE FROM $schema.claims WHERE digest = %(digest)s AND record = %(expect)s RETURNING $durable"
)


def digest_of(key: str) -> str:
    """The key of a row."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def escape(text: str) -> str:
    """The stored form of a text: PostgreSQL's texts cannot hold a NUL."""
    return text.replace(_MARK, _MARK + _MARK).replace("\0", _MARK + "0")


def unescape(stored: str) -> str:
    """The text of a stored form."""
    return re.sub(f"{_MARK}(.)", lambda found: "\0" if found[1] == "0" else _MARK, stored)


def find_claim(sql: Statements, connection: Connection, key: str) -> str | None:
    row = sql.row(connection, _FIND, {"digest": digest_of(key)})
    return unescape(row[0]) if row else None


def list_claims(
    sql: Statements, connection: Connection, after: str | None, limit: int
) -> list[tuple[str, str]]:
    """Keys and records, in the order of the digests."""
    rows = sql.rows(connection, _LIST, ["" if after is None else digest_of(after), limit])
    return [(unescape(key), unescape(record)) for key, record in rows]


def change_claim(sql: Statements, connection: Connection, change: ClaimChange) -> Outcome:
    """Compare and change in one statement; read the record only if that changed nothing."""
    values = {
        "digest": digest_of(change.key),
        "key": escape(change.key),
        "expect": None if change.expect is None else escape(change.expect),
        "record": None if change.record is None else escape(change.record),
    }
    if change.expect is None:
        statement = _ADD if change.record is not None else None
    else:
        statement = _CHANGE if change.record is not None else _FREE
    while True:
        if statement is not None and sql.row(connection, statement, values) is not None:
            return Done(0)
        record = find_claim(sql, connection, change.key)
        if record != change.expect:
            return Claimed(change.key, record)
        if statement is None:
            return Done(0)

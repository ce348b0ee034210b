"""SQL with the schema's name in it: nothing depends on what a connection was told before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from psycopg import sql

from .connections import Connection

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

DURABLE = """
    CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
    END
"""
"""Among the columns of whatever writes: the commit waits for the disk, even where the server's or the role's
default is not to. Any stronger default stays."""


class Statements:
    """Fills in `$schema`, and runs statements without leaving anything behind on the connection."""

    def __init__(self, schema: str) -> None:
        self.schema = sql.Identifier(schema).as_string(None)
        """Its name, as it stands in a statement."""
        self._known: dict[str, bytes] = {}
        # Temporary tables of others come last: they would come first if they were not named.
        self.path = f"{self.schema}, pg_temp"
        """Where a function looks for tables."""

    def fill(self, statement: str) -> bytes:
        """The statement as it is sent."""
        known = self._known.get(statement)
        if known is None:
            # Without its indentation: psycopg parses anew what is long.
            text = " ".join(statement.replace("$durable", DURABLE).split())
            known = self._known[statement] = text.replace("$schema", self.schema.replace("%", "%%")).encode()
        return known

    def rows(self, connection: Connection, statement: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        """What it gives."""
        # Not prepared: behind a pooler, a name on the server may be somebody else's.
        cursor = connection.execute(self.fill(statement), values, prepare=False, binary=True)
        return cursor.fetchall()

    def row(self, connection: Connection, statement: str, values: Parameters = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        return next(iter(self.rows(connection, statement, values)), None)

    def do(self, connection: Connection, statement: str, values: Parameters = ()) -> None:
        """Run what gives no rows."""
        connection.execute(self.fill(statement), values, prepare=False)

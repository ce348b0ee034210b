"""SQL statements: with the name of the schema in them, in transactions, or prepared.

No statement depends on what an earlier one set on its connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, TypeAlias
from weakref import WeakSet

import psycopg
from psycopg import sql
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.types.string import ByteaBinaryLoader

from ...limits import BUSY_S
from .connections import Connection

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

DURABLE = """
    CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
    END
"""
"""A column of every statement that writes: the commit waits for the disk, even if the default of the server
or the role is not to. A stronger default stays."""

_INVALID: Final = (b"26000", b"0A000")
"""The name does not exist; or a migration has changed what its statement returns."""

_EXISTS_ALREADY: Final = b"42P05"


class Statements:
    """Fills in `$schema` and `$durable`, and runs statements that leave nothing behind on the connection."""

    def __init__(self, schema: str) -> None:
        self.schema = sql.Identifier(schema).as_string(None)
        """The name, quoted for a statement."""
        self._known: dict[str, bytes] = {}
        # Temporary tables last: PostgreSQL searches them first unless they are named.
        self.path = f"{self.schema}, pg_temp"
        """The search path of functions."""

    def fill(self, statement: str) -> bytes:
        """The statement as it is sent to the server."""
        known = self._known.get(statement)
        if known is None:
            # Without the indentation: psycopg does not cache the parsed form of long statements.
            text = " ".join(statement.replace("$durable", DURABLE).split())
            known = self._known[statement] = text.replace("$schema", self.schema.replace("%", "%%")).encode()
        return known

    def rows(self, connection: Connection, statement: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run a statement; all its rows."""
        # Not prepared: behind a pooler, a name on the server may stand for another statement.
        cursor = connection.execute(self.fill(statement), values, prepare=False, binary=True)
        return cursor.fetchall()

    def raw_rows(
        self, connection: Connection, statement: str, values: Parameters = ()
    ) -> list[tuple[bytes | None, ...]]:
        """Run a statement of text columns; its rows, in UTF-8."""
        with connection.cursor(binary=True) as cursor:
            cursor.adapters.register_loader("text", ByteaBinaryLoader)
            return cursor.execute(self.fill(statement), values, prepare=False).fetchall()

    def row(self, connection: Connection, statement: str, values: Parameters = ()) -> tuple[Any, ...] | None:
        """Run a statement; its first row, or None."""
        return next(iter(self.rows(connection, statement, values)), None)

    def do(self, connection: Connection, statement: str, values: Parameters = ()) -> None:
        """Run a statement that returns no rows."""
        connection.execute(self.fill(statement), values, prepare=False)


@contextmanager
def transaction(sql: Statements, connection: Connection) -> Iterator[None]:
    """A transaction: durable when the block ends, or rolled back.

    The server ends it if its process stops in the middle, and ends its waits for locks after `BUSY_S`.
    """
    with connection.transaction():
        sql.rows(
            connection,
            "SELECT set_config('idle_in_transaction_session_timeout', '30s', true), "
            "set_config('lock_timeout', %s, true), $durable",
            [f"{BUSY_S * 1000:.0f}ms"],
        )
        yield


class PreparedStatement:
    """A statement with parameters `$1` and so on, whose types it names, and which returns one text.

    It is a statement of a commit, sent in every step, so it uses libpq as directly as psycopg allows. It is
    prepared on each new connection of the driver's own, unless there is a pooler (`is_direct`). Its name is a
    digest of its text: the same name always stands for the same statement. If the name is missing all the
    same, the server says so before it runs anything.
    """

    def __init__(self, statement: str) -> None:
        self._statement = statement.encode()
        self._name = f"holdfast_{sha256(self._statement).hexdigest()[:32]}".encode()
        self._prepared: WeakSet[Connection] = WeakSet()

    def prepare(self, connection: Connection) -> None:
        """Prepare it there. If that fails, `run` reports the reason."""
        connection.pgconn.send_prepare(self._name, self._statement)
        made = _answer(connection)
        if made.status == ExecStatus.COMMAND_OK or _state(made) == _EXISTS_ALREADY:
            self._prepared.add(connection)

    def run(self, connection: Connection, values: Sequence[bytes | None]) -> str:
        """Run it; the text that it returns. The values are in the server's binary format; None is NULL."""
        pgconn, formats = connection.pgconn, [Format.BINARY] * len(values)
        if connection in self._prepared:
            pgconn.send_query_prepared(self._name, values, formats, result_format=Format.BINARY)
            result = _answer(connection)
            if _state(result) not in _INVALID:
                return _read(result)
            self._prepared.discard(connection)
        pgconn.send_query_params(self._statement, values, None, formats, Format.BINARY)
        return _read(_answer(connection))


def is_direct(connection: Connection) -> bool:
    """True if the connection's own server process answers. A pooler hands every transaction to another one,
    where a prepared name may be missing, or stand for another statement."""
    connection.pgconn.send_query_params(b"SELECT pg_backend_pid()::text", None)
    answer = _answer(connection)
    pid = b"%d" % connection.pgconn.backend_pid
    return answer.status == ExecStatus.TUPLES_OK and answer.get_value(0, 0) == pid


def _answer(connection: Connection) -> PGresult:
    """Wait for the answer as for every other: libpq's own calls would wait for ever."""
    result: PGresult = connection.wait(execute(connection.pgconn))[0]
    return result


def _state(result: PGresult) -> bytes | None:
    return result.error_field(DiagnosticField.SQLSTATE)


def _read(result: PGresult) -> str:
    if result.status == ExecStatus.TUPLES_OK:
        return (result.get_value(0, 0) or b"").decode()
    if _state(result) is None:  # An error of libpq's, not the server's: the connection is lost.
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result)

"""The statement of a commit, as close to the wire as psycopg lets us: it is sent for every step.

It is prepared on each new connection of our own, unless something stands between: a pooler hands every
transaction to another connection, where a name may be missing, or be somebody else's. So it is prepared only
if it is the connection's own process that answers, and under a name that is made of its text: whoever has
that name on a server means the same. Where the name is missing all the same, the server says so before it
runs anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final
from weakref import WeakSet

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from .connections import Connection

_GONE: Final = (b"26000", b"0A000")
"""There is no such name; or what stands under it gives something else by now, for a migration has come."""

_THERE_ALREADY: Final = b"42P05"


class Call:
    """A statement with parameters `$1` and so on, whose types it names, and which gives one text."""

    def __init__(self, statement: str) -> None:
        self._statement = statement.encode()
        self._name = f"holdfast_{sha256(self._statement).hexdigest()[:32]}".encode()
        self._prepared: WeakSet[Connection] = WeakSet()

    def prepare(self, connection: Connection) -> None:
        """Prepare it there, if nothing stands between. If that fails, running it will say what is wrong."""
        pgconn = connection.pgconn
        pgconn.send_query_params(b"SELECT pg_backend_pid()::text", None)
        answer = _answer(connection)
        if answer.status != ExecStatus.TUPLES_OK or answer.get_value(0, 0) != b"%d" % pgconn.backend_pid:
            return
        pgconn.send_prepare(self._name, self._statement)
        made = _answer(connection)
        if made.status == ExecStatus.COMMAND_OK or _state(made) == _THERE_ALREADY:
            self._prepared.add(connection)

    def run(self, connection: Connection, values: Sequence[bytes]) -> str:
        """What it gives. The values are in the server's binary format."""
        pgconn, formats = connection.pgconn, [Format.BINARY] * len(values)
        if connection in self._prepared:
            pgconn.send_query_prepared(self._name, values, formats, result_format=Format.BINARY)
            result = _answer(connection)
            if _state(result) not in _GONE:
                return _read(result)
            self._prepared.discard(connection)
        pgconn.send_query_params(self._statement, values, None, formats, Format.BINARY)
        return _read(_answer(connection))


def _answer(connection: Connection) -> PGresult:
    """What the server answers. Waited for as everything else is: libpq's own calls would wait for ever."""
    result: PGresult = connection.wait(execute(connection.pgconn))[0]
    return result


def _state(result: PGresult) -> bytes | None:
    return result.error_field(DiagnosticField.SQLSTATE)


def _read(result: PGresult) -> str:
    if result.status == ExecStatus.TUPLES_OK:
        return (result.get_value(0, 0) or b"").decode()
    if _state(result) is None:  # Not the server's words, but libpq's: the connection is lost.
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result)

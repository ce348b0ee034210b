"""Connections to one server: how they are opened, shared between threads, given up and reopened.

Each piece of work borrows a connection for as long as it runs. It relies on nothing that earlier work left in
the server's session: a pooler may hand every transaction to another server process.

Every wait has a limit. If a statement is not answered for a while, the server may be working, or waiting for
a lock. So the driver asks over another connection whether the server is there. If that is not answered
either, the server is unreachable. If it is, the statement may wait for a lock up to `BUSY_S`; then it is
cancelled. Timeouts on the server do not help if the server is stopped, and behind a pooler, settings of a
connection do not outlive a transaction.
"""

from __future__ import annotations

import inspect
import math
import select
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.pq import ConnStatus, TransactionStatus

from ...errors import BadInput, HoldfastError, StoreBusy, StoreFailed, StoreUnreachable
from ...limits import ANSWER_S, BUSY_AGAIN_S, BUSY_S, CANCEL_S, RECONNECT_S
from ...system import randomness, threads
from ...system.clock import monotonic_s
from .address import Address, show
from .binary_arrays import register_dumpers
from .error_translation import (
    NoAnswer,
    RetryableConflict,
    StillUnreachable,
    translate,
    translate_connect_error,
)

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

_LOSSES_MAX = 3
"""Losses of the connection after which one piece of work fails."""


class ConnectionSource(Protocol):
    """Where connections come from."""

    shown: str
    conninfo: str
    several_hosts: bool
    """True if there are other servers to try, if the one that answers is read-only."""

    def borrow(self) -> AbstractContextManager[Connection]:
        """Lend a connection to this thread for the length of a block."""

    def note_silence(self, since_s: float) -> None:
        """Note that the server has answered nothing since then."""

    def close(self) -> None:
        """Close all idle connections, and lend no more."""


class PostgresConnections:
    """Runs work on borrowed connections."""

    def __init__(self, source: ConnectionSource, schema: str) -> None:
        self._source, self.schema = source, schema
        self._known: WeakSet[Connection] = WeakSet()
        self._busy_s = -math.inf
        """When a wait for a lock last reached its limit."""
        self.on_connect: Callable[[Connection], None] | None = None
        """Called with each new connection before its first use."""

    @property
    def shown(self) -> str:
        """The server's name in errors."""
        return self._source.shown

    def once(self, work: Callable[[Connection], T], *, patient: bool = False) -> T:
        """Run `work`. If the connection is lost meanwhile, the work may or may not have been done.

        `patient`: it may take any time, as long as the server is there. Its transaction limits how long it
        waits for locks.
        """
        deadline_s = monotonic_s() + BUSY_S
        while True:
            try:
                return self._run(work, patient)
            except RetryableConflict:
                if monotonic_s() > deadline_s:
                    raise StoreBusy(
                        f"{self.shown}: other transactions conflicted for {BUSY_S:.0f} s; try again"
                    ) from None
            threads.sleep(randomness.uniform(0, 0.003))

    def _run(self, work: Callable[[Connection], T], patient: bool) -> T:
        try:
            with self._source.borrow() as connection:
                watch(connection, _AnswerTimeout(self._source, connection, self._limit_s(patient)))
                try:
                    self._set_up(connection)
                    return work(connection)
                finally:
                    unwatch(connection)
        except psycopg.Error as error:
            why = translate(error, self.shown, self.schema, several_hosts=self._source.several_hosts)
            if isinstance(why, StoreBusy):
                self._busy_s = monotonic_s()
            raise why from error

    def _limit_s(self, patient: bool) -> float:
        if patient:
            return math.inf
        return BUSY_AGAIN_S if monotonic_s() - self._busy_s < BUSY_S else BUSY_S

    def again(self, work: Callable[[Connection], T], *, patient: bool = False) -> T:
        """Run `work`, and again if the connection is lost; for work that may be done twice."""
        losses, deadline_s = 0, monotonic_s() + RECONNECT_S
        while True:
            try:
                return self.once(work, patient=patient)
            except StillUnreachable:
                raise  # It has waited for the server already.
            except StoreUnreachable:
                losses += 1
                if losses > _LOSSES_MAX or monotonic_s() > deadline_s:
                    raise

    def _set_up(self, connection: Connection) -> None:
        if connection in self._known:
            return
        if connection.info.encoding != "utf-8":
            raise BadInput(f"{self.shown}: connections must have client_encoding=utf8")
        register_dumpers(connection)
        if self.on_connect is not None:
            self.on_connect(connection)
        self._known.add(connection)

    def close(self) -> None:
        """Close the idle connections, and lend no more."""
        self._source.close()


def watch(connection: Connection, on_silence: Callable[[float], None]) -> None:
    """Call `on_silence` every tenth of a second while the server sends nothing, with the time of its last
    byte. It may raise.

    All statements go through the connection's `wait`, where psycopg wakes up that often. An attribute hides
    the method; the class stays unchanged, because the connection may be an application's.
    """

    def watched(gen: PQGen[T]) -> Generator[Any, Any, T]:
        since_s = monotonic_s()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    since_s = monotonic_s()
                else:
                    on_silence(since_s)
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: T = end.value
            return answer

    wait = type(connection).wait
    vars(connection)["wait"] = lambda gen, *args, **how: wait(connection, watched(gen), *args, **how)


def unwatch(connection: Connection) -> None:
    """Undo `watch`."""
    del vars(connection)["wait"]


class _AnswerTimeout:
    """Limits the waits for the answers to one piece of work: checks the server, cancels, gives up."""

    def __init__(self, source: ConnectionSource, connection: Connection, limit_s: float) -> None:
        self._source, self._connection, self._limit_s = source, connection, limit_s
        self._asked_s = -math.inf
        self._cancelled = False

    def __call__(self, since_s: float) -> None:
        pause_s = CANCEL_S if self._cancelled else min(ANSWER_S, self._limit_s)
        if monotonic_s() - max(since_s, self._asked_s) < pause_s:
            return
        if self._cancelled or not _server_answers(self._source, self._connection):
            # Without a message to the server, which does not answer. The statement may run all the same.
            self._connection.close()
            self._source.note_silence(since_s)
            raise NoAnswer(f"it has not answered for {monotonic_s() - since_s:.0f} s")
        if monotonic_s() - since_s >= self._limit_s:
            self._cancelled = True
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CANCEL_S)
        self._asked_s = monotonic_s()


def _server_answers(source: ConnectionSource, silent: Connection) -> bool:
    """True if the server of this connection answers another one. A pooler accepts connections by itself, so
    the server is asked a query."""
    left_s = RECONNECT_S - ANSWER_S
    where = {"host": silent.info.host, "hostaddr": silent.info.hostaddr or None, "port": silent.info.port}
    try:
        conninfo = make_conninfo(source.conninfo, **where, target_session_attrs="any")
        with closing(connect(conninfo, left_s)) as other:
            other.execute("SELECT 1", prepare=False)
    except psycopg.Error as error:
        return "FATAL" in str(error)  # It refused the connection, so it is there.
    return True


def connect(conninfo: str, limit_s: float | None = None) -> Connection:
    """Open a connection. `limit_s` limits connecting, and the answer to each statement; by default, the
    address limits connecting, and statements have no limit."""
    if limit_s is None:
        return psycopg.connect(conninfo, autocommit=True)
    # libpq takes whole seconds, at least two.
    connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=max(2, int(limit_s)))

    def give_up(since_s: float) -> None:
        if monotonic_s() - since_s >= limit_s:
            connection.close()
            raise NoAnswer(f"it has not answered for {limit_s:.0f} s")

    watch(connection, give_up)
    return connection


class OwnConnections:
    """Connections that the driver opens when they are needed, up to a number, and reuses."""

    def __init__(self, address: Address) -> None:
        self._address, self.shown, self.conninfo = address, address.shown, address.conninfo
        self.several_hosts = address.hosts > 1
        self._lock = threads.Lock()
        self._idle: list[Connection] = []
        self._room = threads.BoundedSemaphore(address.connections)
        self._closed = False
        self._away_since_s: float | None = None
        self._reached = False

    def borrow(self) -> AbstractContextManager[Connection]:
        return _BorrowedConnection(self)

    def take(self) -> Connection:
        """Wait for a free connection."""
        if not self._room.acquire(timeout=BUSY_S):
            raise StoreBusy(
                f"{self.shown}: all {self._address.connections} connections were in use for {BUSY_S:.0f} s"
            )
        try:
            return self._take()
        except BaseException:
            self._room.release()
            raise

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise StoreFailed(f"{self.shown} was closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if _is_open(connection):
                return connection
            connection.close()

    def _connect(self) -> Connection:
        """Open a new connection. Wait for a server that was there before: it may be restarting, or failing
        over. After a wait without success, later calls do not wait until the server is back."""
        while True:
            began_s = monotonic_s()
            try:
                connection = psycopg.connect(
                    self.conninfo, autocommit=True, connect_timeout=self._connect_timeout_s()
                )
            except psycopg.Error as error:
                why = translate_connect_error(error, self.shown)
                if not self._may_come_back(why, began_s):
                    if isinstance(why, StoreUnreachable):
                        raise StillUnreachable(*why.args) from error
                    raise why from error
                threads.sleep(randomness.uniform(0.05, 0.2))
                continue
            with self._lock:
                self._reached, self._away_since_s = True, None
            return connection

    def _connect_timeout_s(self) -> int:
        """The remaining time, divided by the servers that may be tried. libpq takes at least two seconds."""
        with self._lock:
            if not self._reached:
                return self._address.connect_timeout_s
            away_s = 0.0 if self._away_since_s is None else monotonic_s() - self._away_since_s
        left_s = (RECONNECT_S - away_s) / self._address.hosts
        return max(2, min(self._address.connect_timeout_s, int(left_s)))

    def _may_come_back(self, why: HoldfastError, began_s: float) -> bool:
        with self._lock:
            starting = "starting up" in str(why) or "recovery" in str(why)
            if self._closed or not isinstance(why, StoreUnreachable) or not (self._reached or starting):
                return False
            if self._away_since_s is None:
                self._away_since_s = began_s
            return monotonic_s() - self._away_since_s < RECONNECT_S

    def note_silence(self, since_s: float) -> None:
        with self._lock:
            self._away_since_s = since_s if self._away_since_s is None else min(self._away_since_s, since_s)
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def give_back(self, connection: Connection, error: BaseException | None) -> None:
        """Keep a connection for reuse, if no transaction is open on it, and its server could be written."""
        try:
            whole = connection.pgconn.transaction_status == TransactionStatus.IDLE
            # A new connection may reach the server that took over.
            whole = whole and not isinstance(error, ReadOnlySqlTransaction)
            with self._lock:
                keep = whole and not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()
        finally:
            self._room.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _BorrowedConnection(AbstractContextManager[Connection]):
    """Lends a connection for a block. A class, since a generator costs more, and every commit has one."""

    def __init__(self, source: OwnConnections) -> None:
        self._source = source

    def __enter__(self) -> Connection:
        self._connection = self._source.take()
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._source.give_back(self._connection, error)


class PoolConnections:
    """Connections of an application's pool. The application closes the pool."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        if inspect.iscoroutinefunction(pool.getconn):
            raise BadInput(
                "a store works in threads of its own: pass a psycopg_pool.ConnectionPool, not an async one"
            )
        self._pool = pool
        self._closed = False
        self.several_hosts = False
        self.shown = f"the pool {pool.name!r}"
        try:
            with self.borrow() as connection:
                given = connection.info.get_parameters()
                self.shown = show(given)
                self.conninfo = make_conninfo("", **given, password=connection.info.password)
        except psycopg.Error as error:
            raise translate(error, self.shown, "") from error

    def note_silence(self, since_s: float) -> None:
        """The pool checks its connections by itself."""

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        if self._closed:
            raise StoreFailed(f"{self.shown} was closed")
        from psycopg_pool import PoolTimeout  # Installed, since the application has a pool.

        with ExitStack() as stack:
            try:
                # At most as long as the application allows.
                lent = self._pool.connection(timeout=min(self._pool.timeout, RECONNECT_S))
                connection = stack.enter_context(lent)
            except PoolTimeout as error:
                raise StillUnreachable(f"{self.shown}: the pool gave no connection: {error}") from error
            before = connection.autocommit
            if not before:
                # Otherwise psycopg sends a BEGIN before every statement, and a COMMIT after it.
                connection.autocommit = True
            try:
                yield connection
            finally:
                if not before and not connection.closed:
                    connection.autocommit = before

    def close(self) -> None:
        self._closed = True


def _is_open(connection: Connection) -> bool:
    """True if the server has not closed the connection: only that makes an idle connection readable."""
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        while waiting.poll(0):
            connection.pgconn.consume_input()
        return connection.pgconn.status == ConnStatus.OK
    except (psycopg.Error, OSError):
        return False

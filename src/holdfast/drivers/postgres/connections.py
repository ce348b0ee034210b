"""Connections to one server: how they are opened, shared between threads, given up and made anew.

Each piece of work borrows one for as long as it takes, and counts on nothing that an earlier one left in its
session on the server: whatever stands between may hand every transaction to another one.

No wait is without an end. A statement that the server does not answer for a while is no proof of anything: it
may work, or wait for a lock. So the server is asked over another connection whether it is there. If it does
not answer that either, it is unreachable. If it does, a lock is waited for up to `BUSY_S`; then the statement
is cancelled. Timeouts of the server's own are no use where the server is stopped, and settings of a
connection do not outlive a transaction behind a pooler.
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
from .binary_arrays import teach
from .error_translation import Collided, NoAnswer, StillAway, refused, translate

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

_LOSSES_MAX = 3
"""How often one piece of work may lose its connection before it fails."""


class Source(Protocol):
    """Where connections come from."""

    shown: str
    conninfo: str
    several: bool
    """Whether there are other servers to turn to, if the one that is reached can only be read."""

    def borrow(self) -> AbstractContextManager[Connection]:
        """A connection for this thread alone, for as long as the block lasts."""

    def note_silence(self, since_s: float) -> None:
        """The server has not answered since then, whatever it was asked."""

    def close(self) -> None:
        """Let go of all of them."""


class Connections:
    """Runs work on borrowed connections."""

    def __init__(self, source: Source, schema: str) -> None:
        self._source, self.schema = source, schema
        self._known: WeakSet[Connection] = WeakSet()
        self._busy_s = -math.inf
        """When a lock was last waited for in vain."""
        self.welcome: Callable[[Connection], None] | None = None
        """Done with each new one before it is used."""

    @property
    def shown(self) -> str:
        """What to call the server."""
        return self._source.shown

    def once(self, work: Callable[[Connection], T], *, patient: bool = False) -> T:
        """Do it. If the connection is lost on the way, nobody knows whether it was done.

        `patient`: it may take any time, as long as the server is there. Its transaction limits how long it
        waits for locks.
        """
        deadline_s = monotonic_s() + BUSY_S
        while True:
            try:
                return self._do(work, patient)
            except Collided:
                if monotonic_s() > deadline_s:
                    raise StoreBusy(
                        f"{self.shown}: others were quicker for {BUSY_S:.0f} s, again and again"
                    ) from None
            threads.sleep(randomness.uniform(0, 0.003))

    def _do(self, work: Callable[[Connection], T], patient: bool) -> T:
        try:
            with self._source.borrow() as connection:
                watch(connection, _Patience(self._source, connection, self._limit_s(patient)))
                try:
                    self._look_at(connection)
                    return work(connection)
                finally:
                    unwatch(connection)
        except psycopg.Error as error:
            why = translate(error, self.shown, self.schema, several=self._source.several)
            if isinstance(why, StoreBusy):
                self._busy_s = monotonic_s()
            raise why from error

    def _limit_s(self, patient: bool) -> float:
        if patient:
            return math.inf
        return BUSY_AGAIN_S if monotonic_s() - self._busy_s < BUSY_S else BUSY_S

    def again(self, work: Callable[[Connection], T], *, patient: bool = False) -> T:
        """Do it, and again if the connection is lost: for what does no harm when it is done twice."""
        losses, deadline_s = 0, monotonic_s() + RECONNECT_S
        while True:
            try:
                return self.once(work, patient=patient)
            except StillAway:
                raise  # It was waited for already.
            except StoreUnreachable:
                losses += 1
                if losses > _LOSSES_MAX or monotonic_s() > deadline_s:
                    raise

    def _look_at(self, connection: Connection) -> None:
        if connection in self._known:
            return
        if connection.info.encoding != "utf-8":
            raise BadInput(f"{self.shown}: connections must have client_encoding=utf8")
        teach(connection)
        if self.welcome is not None:
            self.welcome(connection)
        self._known.add(connection)

    def close(self) -> None:
        """Let go of the connections."""
        self._source.close()


def watch(connection: Connection, on_silence: Callable[[float], None]) -> None:
    """Call this again and again while the server says nothing, with the time since when. It may raise.

    All statements go through the connection's `wait`, and psycopg looks up every tenth of a second there. The
    method is hidden by an attribute, and not replaced in a class: the connection may be an application's.
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
    """Leave the connection as it was."""
    del vars(connection)["wait"]


class _Patience:
    """How long the answers to one piece of work are waited for."""

    def __init__(self, source: Source, connection: Connection, limit_s: float) -> None:
        self._source, self._connection, self._limit_s = source, connection, limit_s
        self._asked_s = -math.inf
        self._cancelled = False

    def __call__(self, since_s: float) -> None:
        pause_s = CANCEL_S if self._cancelled else min(ANSWER_S, self._limit_s)
        if monotonic_s() - max(since_s, self._asked_s) < pause_s:
            return
        if self._cancelled or not _is_there(self._source, self._connection):
            # Without another word: nobody would answer it. What was asked may be done all the same.
            self._connection.close()
            self._source.note_silence(since_s)
            raise NoAnswer(f"it has not answered for {monotonic_s() - since_s:.0f} s")
        if monotonic_s() - since_s >= self._limit_s:
            self._cancelled = True
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CANCEL_S)
        self._asked_s = monotonic_s()


def _is_there(source: Source, silent: Connection) -> bool:
    """Whether the server of this connection answers another one. A pooler answers for itself at first, so the
    question is one that only the server can answer."""
    left_s = RECONNECT_S - ANSWER_S
    where = {"host": silent.info.host, "hostaddr": silent.info.hostaddr or None, "port": silent.info.port}
    try:
        conninfo = make_conninfo(source.conninfo, **where, target_session_attrs="any")
        with closing(connect(conninfo, left_s)) as other:
            other.execute("SELECT 1", prepare=False)
    except psycopg.Error as error:
        return "FATAL" in str(error)  # It refuses this connection, so it is there.
    return True


def connect(conninfo: str, limit_s: float | None = None) -> Connection:
    """A new connection, with as much time for the server to take it, and to answer each statement; by default
    with the time that its address gives it, and statements are not watched."""
    if limit_s is None:
        return psycopg.connect(conninfo, autocommit=True)
    # libpq knows whole seconds, and nothing below two.
    connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=max(2, int(limit_s)))

    def give_up(since_s: float) -> None:
        if monotonic_s() - since_s >= limit_s:
            connection.close()
            raise NoAnswer(f"it has not answered for {limit_s:.0f} s")

    watch(connection, give_up)
    return connection


class OwnConnections:
    """Opened when they are needed, up to a number, and kept for the next who needs one."""

    def __init__(self, address: Address) -> None:
        self._address, self.shown, self.conninfo = address, address.shown, address.conninfo
        self.several = address.hosts > 1
        self._lock = threads.Lock()
        self._idle: list[Connection] = []
        self._room = threads.BoundedSemaphore(address.connections)
        self._closed = False
        self._away_since_s: float | None = None
        self._reached = False

    def borrow(self) -> AbstractContextManager[Connection]:
        return _Loan(self)

    def take(self) -> Connection:
        """Wait for one that nobody else has."""
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
                return self._reach()
            if _is_open(connection):
                return connection
            connection.close()

    def _reach(self) -> Connection:
        """Open a new one. A server that was there before is waited for a while: it may be restarting, or
        another one may be taking its place. Who waited in vain once does not wait again until it is back."""
        while True:
            began_s = monotonic_s()
            try:
                connection = psycopg.connect(
                    self.conninfo, autocommit=True, connect_timeout=self._connect_timeout_s()
                )
            except psycopg.Error as error:
                why = refused(error, self.shown)
                if not self._may_come_back(why, began_s):
                    if isinstance(why, StoreUnreachable):
                        raise StillAway(*why.args) from error
                    raise why from error
                threads.sleep(randomness.uniform(0.05, 0.2))
                continue
            with self._lock:
                self._reached, self._away_since_s = True, None
            return connection

    def _connect_timeout_s(self) -> int:
        """What is left of the time, for each server that may be tried. libpq knows nothing below two."""
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
        """Keep it for the next, if nothing is left open on it, and it was good for what was done."""
        try:
            whole = connection.pgconn.transaction_status == TransactionStatus.IDLE
            # The next one may find the server that has taken this one's place.
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


class _Loan(AbstractContextManager[Connection]):
    """A class of its own, not a generator: there is one for every commit."""

    def __init__(self, source: OwnConnections) -> None:
        self._source = source

    def __enter__(self) -> Connection:
        self._connection = self._source.take()
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._source.give_back(self._connection, error)


class PoolConnections:
    """Borrowed from the application's pool, which stays the application's to close."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        if inspect.iscoroutinefunction(pool.getconn):
            raise BadInput(
                "a store works in threads of its own: give it a psycopg_pool.ConnectionPool, not an async one"
            )
        self._pool = pool
        self._closed = False
        self.several = False
        self.shown = f"the pool {pool.name!r}"
        try:
            with self.borrow() as connection:
                given = connection.info.get_parameters()
                self.shown = show(given)
                self.conninfo = make_conninfo("", **given, password=connection.info.password)
        except psycopg.Error as error:
            raise translate(error, self.shown, "") from error

    def note_silence(self, since_s: float) -> None:
        """The pool notices by itself."""

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        if self._closed:
            raise StoreFailed(f"{self.shown} was closed")
        from psycopg_pool import PoolTimeout  # It is there: the application has one.

        with ExitStack() as stack:
            try:
                # Not longer than the application allows.
                lent = self._pool.connection(timeout=min(self._pool.timeout, RECONNECT_S))
                connection = stack.enter_context(lent)
            except PoolTimeout as error:
                raise StillAway(f"{self.shown}: the pool gave no connection: {error}") from error
            before = connection.autocommit
            if not before:
                # Or else every statement is preceded by a BEGIN and followed by a COMMIT of its own.
                connection.autocommit = True
            try:
                yield connection
            finally:
                if not before and not connection.closed:
                    connection.autocommit = before

    def close(self) -> None:
        self._closed = True


def _is_open(connection: Connection) -> bool:
    """Whether the server has not hung up meanwhile: nothing else makes an idle connection readable."""
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        while waiting.poll(0):
            connection.pgconn.consume_input()
        return connection.pgconn.status == ConnStatus.OK
    except (psycopg.Error, OSError):
        return False

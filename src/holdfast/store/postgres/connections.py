"""Connections to one server: how they are opened, shared between threads, given up and made anew.

Each piece of work borrows one for as long as it takes, and counts on nothing that an earlier one left in its
session on the server: whatever stands between may hand every transaction to another one.
"""

from __future__ import annotations

import inspect
import random
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus

from ...errors import BadInput, HoldfastError, StoreBusy, StoreFailed, StoreUnreachable
from ...limits import BUSY_S, RECONNECT_S
from .address import Address, show
from .arrays import teach
from .failures import Collided, refused, translate

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

_LOSSES_MAX = 3
"""How often one piece of work may lose its connection before it fails."""


class Source(Protocol):
    """Where connections come from."""

    shown: str

    def borrow(self) -> AbstractContextManager[Connection]:
        """A connection for this thread alone, for as long as the block lasts."""

    def close(self) -> None:
        """Let go of all of them."""


class Connections:
    """Runs work on borrowed connections."""

    def __init__(self, source: Source, schema: str) -> None:
        self._source, self.schema = source, schema
        self._known: WeakSet[Connection] = WeakSet()
        self.welcome: Callable[[Connection], None] | None = None
        """Done with each new one before it is used."""

    @property
    def shown(self) -> str:
        """What to call the server."""
        return self._source.shown

    def once(self, work: Callable[[Connection], T]) -> T:
        """Do it. If the connection is lost on the way, nobody knows whether it was done."""
        deadline_s = time.monotonic() + BUSY_S
        while True:
            try:
                return self._do(work)
            except Collided:
                if time.monotonic() > deadline_s:
                    raise StoreBusy(
                        f"{self.shown}: others were quicker for {BUSY_S:.0f} s, again and again"
                    ) from None
            time.sleep(random.uniform(0, 0.003))

    def _do(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._source.borrow() as connection:
                self._look_at(connection)
                return work(connection)
        except psycopg.Error as error:
            raise translate(error, self.shown, self.schema) from error

    def again(self, work: Callable[[Connection], T]) -> T:
        """Do it, and again if the connection is lost: for what does no harm when it is done twice."""
        losses = 0
        while True:
            try:
                return self.once(work)
            except _NoConnection:
                raise  # It was waited for already.
            except StoreUnreachable:
                losses += 1
                if losses > _LOSSES_MAX:
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


class _NoConnection(StoreUnreachable):
    """Nothing was sent."""


class OwnConnections:
    """Opened when they are needed, up to a number, and kept for the next who needs one."""

    def __init__(self, address: Address) -> None:
        self._address, self.shown = address, address.shown
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._room = threading.BoundedSemaphore(address.connections)
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
            if _is_there(connection):
                return connection
            connection.close()

    def _reach(self) -> Connection:
        """Open a new one. A server that was there before is waited for a while: it may be restarting, or
        another one may be taking its place. Who waited in vain once does not wait again until it is back."""
        while True:
            try:
                connection = psycopg.connect(self._address.conninfo, autocommit=True)
            except psycopg.Error as error:
                why = refused(error, self.shown)
                if not self._may_come_back(why):
                    if isinstance(why, StoreUnreachable):
                        raise _NoConnection(*why.args) from error
                    raise why from error
                time.sleep(random.uniform(0.05, 0.2))
                continue
            with self._lock:
                self._reached, self._away_since_s = True, None
            return connection

    def _may_come_back(self, why: HoldfastError) -> bool:
        now_s = time.monotonic()
        with self._lock:
            starting = "starting up" in str(why) or "recovery" in str(why)
            if self._closed or not isinstance(why, StoreUnreachable) or not (self._reached or starting):
                return False
            if self._away_since_s is None:
                self._away_since_s = now_s
            return now_s - self._away_since_s < RECONNECT_S

    def give_back(self, connection: Connection) -> None:
        """Keep it for the next, if nothing is left open on it."""
        try:
            whole = connection.pgconn.transaction_status == TransactionStatus.IDLE
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

    def __exit__(self, *_: object) -> None:
        self._source.give_back(self._connection)


class PoolConnections:
    """Borrowed from the application's pool, which stays the application's to close."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        if inspect.iscoroutinefunction(pool.getconn):
            raise BadInput(
                "a store works in threads of its own: give it a psycopg_pool.ConnectionPool, not an async one"
            )
        self._pool = pool
        self._closed = False
        self.shown = f"the pool {pool.name!r}"
        try:
            with self.borrow() as connection:
                given = connection.info.get_parameters()
                self.shown = show(given)
                self.conninfo = make_conninfo("", **given, password=connection.info.password)
        except psycopg.Error as error:
            raise translate(error, self.shown, "") from error

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        if self._closed:
            raise StoreFailed(f"{self.shown} was closed")
        with self._pool.connection() as connection:
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


def _is_there(connection: Connection) -> bool:
    """Whether the server has not hung up meanwhile: nothing else makes an idle connection readable."""
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        while waiting.poll(0):
            connection.pgconn.consume_input()
        return connection.pgconn.status == ConnStatus.OK
    except (psycopg.Error, OSError):
        return False

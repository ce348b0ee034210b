"""The notifier: tells of every call that waits for a person, so that no person has to look."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple, TypeAlias

import anyio
import msgspec
from msgspec import Struct

from ..drivers.contract import ClaimChange, Claimed
from ..engine.engine import Engine
from ..errors import BadInput, Closed, Fenced, HoldfastError, LeaseHeld
from ..ids import check_name
from ..limits import (
    LEASE_POLL_S,
    NOTIFY_HANDOVER_S,
    NOTIFY_LOOK_SHARE,
    NOTIFY_POLL_MAX_S,
    NOTIFY_POLL_S,
    NOTIFY_TELL_S,
)
from ..reprs import describe_error
from ..session.resource_lease import Hold, hold
from ..store.approvals import Waiting, find_waiting
from ..store.opening import AnyStore, find_open_store, use_store
from ..store.store import Store
from ..system import randomness
from ..system.aio import run_in_daemon_thread
from ..system.clock import boot_s
from ..tools.retry import Retry

log = logging.getLogger("holdfast")
OnWaiting: TypeAlias = Callable[[Waiting], Awaitable[object] | object]
"""Called with a call that waits for a person. An exception means that no person was told."""

RETRY = Retry(attempts=5, backoff_s=1.0, factor=2.0, backoff_max_s=300.0)


def identify_waiting(one: Waiting) -> str:
    """An id of the call that waits: the same whenever it is told, and no other call's."""
    facts = (one.session, one.entry, one.kind, one.operation, one.since.isoformat())
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]


class FailedTelling(NamedTuple):
    """How often a call could not be told, and from when on to try again."""

    attempts: int
    again_s: float


class Notifier:
    """Tells of each call of a store that waits for a person: `await Notifier(store, on_waiting).run()`.

    `store` is an open store, or the URL or `Path` of one that `run` opens, and closes at its end.
    `on_waiting` is called with each `Waiting`: every call that needs approval and every call in doubt, once,
    the oldest first. That it was told is recorded in the store afterwards. So a call is told again if the
    process dies between the two, and never lost. If `on_waiting` raises, or takes longer than a minute, it is
    called again after a pause, which grows as `retry` says; other calls do not wait for that.

    Notifiers with the same `name` are one: the first one tells, the others wait to take over when its
    process ends. Use another name for another place to tell. `poll_s`: how often the store is looked through.
    """

    def __init__(
        self,
        store: AnyStore,
        on_waiting: OnWaiting,
        *,
        name: str = "on_waiting",
        poll_s: float = NOTIFY_POLL_S,
        retry: Retry = RETRY,
    ) -> None:
        if poll_s <= 0:
            raise BadInput(f"{poll_s=} must be positive")
        find_open_store(store)  # A wrong one is an error here.
        self._given, self._on_waiting = store, on_waiting
        self._name = check_name("name of a notifier", name)
        self._poll_s, self._retry = poll_s, retry
        self._limiter = anyio.CapacityLimiter(1)
        self._is_stopping = self._is_ending = False
        self._wake = anyio.Event()
        self._failed: dict[str, FailedTelling] = {}
        self.untold: int = 0
        """How many calls were found and not told yet, when the store was last looked through."""

    def stop(self) -> None:
        """Tell no more calls."""
        self._is_stopping = True
        self._wake.set()

    def finish(self) -> None:
        """Tell what waits now, trying once, then end. What cannot be told stays for the next notifier."""
        self._is_ending = True
        self._wake.set()

    async def run(self, *, once: bool = False) -> None:
        """Tell until `stop` or `finish` is called; with `once`, only what waits now.

        With `once`, calls that could not be told within the attempts of `retry` are counted in `untold`;
        `LeaseHeld` says that another process is telling.
        """
        until_s: float | None = None
        async with use_store(self._given) as store:
            record = ToldRecord(store._engine, self._name)
            while self._goes_on():
                self._wake = anyio.Event()
                is_last = self._is_ending
                try:
                    async with hold(store._engine, None, f"notify:{self._name}", 0) as held:
                        await self._watch(store, record, held, once)
                    return
                except Closed:
                    raise
                except LeaseHeld:
                    if once:
                        raise
                    if is_last:
                        # The other one may be ending, too, and have looked before this call waited.
                        until_s = until_s or boot_s() + NOTIFY_HANDOVER_S
                        if boot_s() >= until_s or await self._has_told_all(store, record):
                            return
                        await anyio.sleep(LEASE_POLL_S)
                        continue
                except HoldfastError as error:
                    if once:
                        raise
                    if is_last:
                        return
                    if not isinstance(error, Fenced):
                        log.warning("what waits for a person cannot be told: %s", error)
                await self._pause(self._poll_s)

    async def _has_told_all(self, store: Store, record: ToldRecord) -> bool:
        try:
            waiting = [identify_waiting(one) for one in await find_waiting(store)]
            return not await store._engine.call(record.find_new, waiting)
        except HoldfastError as error:
            log.warning("what waits for a person cannot be told: %s", error)
            return True

    async def _watch(self, store: Store, record: ToldRecord, held: Hold, once: bool) -> None:
        engine = store._engine
        while self._goes_on():
            is_last, began_s = once or self._is_ending, boot_s()
            waiting = {identify_waiting(one): one for one in await find_waiting(store)}
            new = await engine.call(record.find_new, waiting)
            self._failed = {id: failed for id, failed in self._failed.items() if id in new}
            self.untold = len(new)
            took_s = boot_s() - began_s
            for id in self._choose(new):
                if not self._goes_on():
                    return
                await held.check()
                if await self._tell(id, waiting[id]):
                    await engine.call(record.add, id, waiting)
                    self.untold -= 1
                elif not is_last:
                    break  # What waits may have an answer after the pause.
            if not is_last:
                await self._pause(max(self._poll_s, min(took_s / NOTIFY_LOOK_SHARE, NOTIFY_POLL_MAX_S)))
                continue
            attempts = 1 if self._is_ending else self._retry.attempts
            again_s = [one.again_s for one in self._failed.values() if one.attempts < attempts]
            if not again_s:
                return
            await self._pause(max(0.0, min(again_s) - boot_s()))

    def _choose(self, new: Iterable[str]) -> list[str]:
        """The calls to tell now: the oldest first, and before those that could not be told."""
        now_s = boot_s()
        due = [id for id in new if id not in self._failed or self._failed[id].again_s <= now_s]
        return sorted(due, key=lambda id: self._failed[id].attempts if id in self._failed else 0)

    async def _tell(self, id: str, one: Waiting) -> bool:
        try:
            with anyio.fail_after(NOTIFY_TELL_S):
                if inspect.iscoroutinefunction(self._on_waiting):
                    await self._on_waiting(one)
                else:
                    # In a tuple: trio refuses a function that returns a coroutine.
                    (said,) = await run_in_daemon_thread(lambda: (self._on_waiting(one),), self._limiter)
                    if inspect.isawaitable(said):
                        await said
        except Exception as error:
            attempts = self._failed[id].attempts + 1 if id in self._failed else 1
            pause_s = self._retry.pause_s(attempts, randomness.random())
            self._failed[id] = FailedTelling(attempts, boot_s() + pause_s)
            log.warning(
                "no person was told that %s waits in session %s: %s",
                *(one.tool, one.session, describe_error(error)),
            )
            return False
        self._failed.pop(id, None)
        return True

    def _goes_on(self) -> bool:
        return not self._is_stopping

    async def _pause(self, pause_s: float) -> None:
        with anyio.move_on_after(pause_s):
            await self._wake.wait()


# -- the record of what was told ------------------------------------------------------------------------


class _ToldIds(Struct, frozen=True):
    """Ids of calls that were told, and waited when the record was last written."""

    ids: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(_ToldIds).decode


class ToldRecord:
    """What notifiers of one name have told, kept in claims of the store. Its methods block.

    A claim for each of the first two digits of the ids: so noting one of ten thousand rewrites forty. Ids of
    calls that no longer wait are left out when a claim is written.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._driver, self._name = engine.driver, name
        self._told: set[str] = set()
        """Of those that wait: told here, or read."""
        self._unrecorded: set[str] = set()
        """Told here, and the store failed to take it."""

    def find_new(self, waiting: Collection[str]) -> list[str]:
        """The ids of these that were not told, in the order given."""
        self._told.intersection_update(waiting)
        self._unrecorded.intersection_update(waiting)
        for id in sorted(self._unrecorded):
            self._write(id, waiting)
        for place in {id[:2] for id in waiting if id not in self._told}:
            self._told.update(one for one in self._read(place)[0] if one in waiting)
        return [id for id in waiting if id not in self._told]

    def add(self, id: str, waiting: Collection[str]) -> None:
        """Note that one was told. Durable on return."""
        self._told.add(id)
        self._unrecorded.add(id)
        self._write(id, waiting)

    def _write(self, id: str, waiting: Collection[str]) -> None:
        while True:
            ids, record = self._read(id[:2])
            known = (*(one for one in ids if one in waiting and one != id), id)
            new = msgspec.json.encode(_ToldIds(known)).decode()
            change = ClaimChange(key=self._key(id[:2]), expect=record, record=new)
            if new == record or not isinstance(self._driver.claim(change), Claimed):
                self._unrecorded.discard(id)
                return

    def _read(self, place: str) -> tuple[tuple[str, ...], str | None]:
        record = self._driver.find_claim(self._key(place))
        if record is None:
            return (), None
        try:
            return _decode(record).ids, record
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            log.warning("a record of what was told cannot be read, and is told again: %s", error)
            return (), record

    def _key(self, place: str) -> str:
        return f"told:{self._name}:{place}"

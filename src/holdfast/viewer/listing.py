"""All sessions of a store, as the pages list them: read once for all visitors, seldom where it is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import anyio
from msgspec import Struct

from ..cli.json_views import name_adapter, name_thread, standing
from ..core.head import Head
from ..errors import Corrupt, HoldfastError
from ..ids import HolderId, SessionId
from ..limits import VIEWER_LIST_AGE_S, VIEWER_LIST_REST
from ..store.approvals import Waiting, find_waiting_of_deleted
from ..store.store import Store
from ..system.clock import monotonic_s


class Listed(Struct, frozen=True, kw_only=True):
    """The sessions of a store at one moment, the latest change first."""

    heads: Sequence[Head]
    alive: Mapping[HolderId, bool]
    """Whether the holder of a lease may be alive; damaged heartbeats are left out."""
    damaged: Mapping[SessionId, str]
    deleted: Sequence[Waiting]
    """Calls in doubt of sessions that were deleted, which others may still repeat."""

    def is_held(self, head: Head) -> bool:
        """Whether a process that may be alive holds the session."""
        return head.lease is not None and self.alive.get(head.lease.holder, False)

    def count_waiting(self) -> int:
        """How many calls of all sessions wait for a person."""
        return sum(count_waiting(head, self) for head in self.heads) + len(self.deleted)

    def standing(self, head: Head) -> str:
        """The status of a session, in the words of `holdfast sessions`."""
        return standing(head, self.is_held(head))


class Listing:
    """Reads the list when it is asked for and the last one is too old."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = anyio.Lock()
        self._last: Listed | None = None
        self._valid_until_s = 0.0
        self._changes = self._seen = 0
        """How often something was changed here, and how often before the last reading began."""

    def forget(self) -> None:
        """Read anew the next time: something was changed here."""
        self._changes += 1

    @property
    def last(self) -> Listed | None:
        """What was read last, if anything was."""
        return self._last

    async def get(self) -> Listed:
        """The sessions now, or a moment ago; while another visitor has them read, as they were before."""
        if self._last is not None and self._seen == self._changes and self._lock.locked():
            return self._last
        async with self._lock:
            if self._last is None or self._seen != self._changes or monotonic_s() >= self._valid_until_s:
                self._seen, began_s = self._changes, monotonic_s()
                self._last = await _read(self._store())
                ended_s = monotonic_s()
                rest_s = max(VIEWER_LIST_AGE_S, VIEWER_LIST_REST * (ended_s - began_s))
                self._valid_until_s = ended_s + rest_s
            return self._last


async def _read(store: Store) -> Listed:
    damaged: dict[SessionId, str] = {}

    def note(session: SessionId, error: HoldfastError) -> None:
        damaged[session] = str(error)

    heads = [head async for head in store.sessions(on_damaged=note)]
    alive: dict[HolderId, bool] = {}
    for head in heads:
        if head.lease is None or head.lease.holder in alive:
            continue
        try:
            alive[head.lease.holder] = await store.is_held(head)
        except Corrupt as error:
            damaged[head.session] = str(error)
    heads.sort(key=lambda head: head.updated_at, reverse=True)
    deleted = await find_waiting_of_deleted(store)
    return Listed(heads=heads, alive=alive, damaged=damaged, deleted=deleted)


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions of the list to show, as the address says. Empty does not restrict."""

    q: str = ""
    """Words that are all in the id, title, agent, labels or thread."""
    status: str = ""
    agent: str = ""
    framework: str = ""
    waits: str = ""
    """`yes`: only sessions with something that waits for a person."""
    parent: str = ""

    def matches(self, head: Head, listed: Listed) -> bool:
        """Whether a session is shown."""
        return (
            (not self.status or listed.standing(head) == self.status)
            and (not self.agent or head.agent == self.agent)
            and (not self.framework or name_framework(head) == self.framework)
            and (not self.waits or bool(count_waiting(head, listed)))
            and (not self.parent or head.parent == self.parent)
            and (not self.q or _contains(head, self.q))
        )


def _contains(head: Head, words: str) -> bool:
    labels = " ".join(f"{name}={value}" for name, value in head.labels.items())
    text = f"{head.session} {head.title} {head.agent or ''} {name_thread(head)} {labels}".casefold()
    return all(word in text for word in words.casefold().split())


def name_framework(head: Head) -> str:
    """The framework whose adapter made the session; `holdfast` for the library's own."""
    return name_adapter(head) or "holdfast"


def count_waiting(head: Head, listed: Listed) -> int:
    """How many calls of a session wait for a person."""
    return head.waiting + (0 if listed.is_held(head) else head.in_doubt)

"""Whether the journals of a fleet are what they should be, read off their entries."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import Store, open_store
from holdfast.core.entries import LeaseTaken, RunStarted
from holdfast.records import Entry


def list_foreign(entries: Iterable[Entry]) -> list[str]:
    """Entries of runs that began under an earlier lease than the one they are written under."""
    lease, begun_under = 0, dict[str, int]()
    found: list[str] = []
    for entry in entries:
        if isinstance(entry.body, LeaseTaken):
            lease = entry.seq
        elif isinstance(entry.body, RunStarted):
            begun_under[entry.run or ""] = lease
        if entry.run is not None and begun_under.get(entry.run) != lease:
            found.append(f"{entry.seq} {entry.kind} of {entry.run}")
    return found


async def find_zombie_lines(url: str) -> list[str]:
    """Over all sessions of a store: lines that somebody wrote who was out."""
    async with open_store(url) as store:
        return await list_zombie_lines(store)


async def list_zombie_lines(store: Store) -> list[str]:
    """The same of an open store."""
    found: list[str] = []
    async for head in store.sessions():
        entries = [entry async for entry in store.tail(head.session, follow=False)]
        found += [f"{head.session}: {line}" for line in list_foreign(entries)]
    return found

"""Open the store of a command, and find the session that it names."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import Final, TypeVar

import anyio

from ..adapters.langgraph_threads import (
    ADAPTER_LABEL,
    LEDGERS,
    NAMESPACE_LABEL,
    THREAD_LABEL,
    THREADS,
    thread_labels,
)
from ..blobs.home import NoHome
from ..core.head import Head
from ..errors import BadId, HoldfastError, NotFound
from ..store.store import Store, open_store
from ..suggestions import list_closest
from .console import visible
from .exit_codes import Exit, Stop
from .formatting import shorten
from .options import Common

T = TypeVar("T")

IDS_MAX: Final = 10_000
"""How many ids are read to complete one, or to suggest one: listing millions would take too long."""


def with_store(
    common: Common, work: Callable[[Store], Awaitable[T]], *, create: bool = False, read_only: bool = False
) -> T:
    """Run `work` with the store that the options name."""

    async def main() -> T:
        store = open_store(common.store, blobs=common.blobs, create=create, read_only=read_only)
        try:
            await store.__aenter__()
        except NotFound as missing:
            option = "blobs" if isinstance(missing, NoHome) else "store"
            raise Stop(
                Exit.NOT_FOUND, f"{missing}: name one with --{option}, or set HOLDFAST_{option.upper()}"
            ) from missing
        try:
            return await work(store)
        finally:
            await store.aclose()

    return anyio.run(main)


async def get_head(store: Store, session: str) -> Head:
    """The head of a session; if there is none, an error that suggests similar ids."""
    try:
        return await store.head(session)
    except (NotFound, BadId) as missing:
        thread = await get_thread(store, session)
        if thread:
            named = ", ".join(head.session for head in thread)
            hint = f"it is a thread of LangGraph, whose sessions are {named}"
            raise Stop(Exit.NOT_FOUND, f"no session {shlex.quote(session)}; {hint}") from missing
        known = [head.session async for head in _iter_heads(store)]
        close = list_closest(session, known, max_count=3)
        if close:
            hint = f"did you mean {' or '.join(close)}?"
        elif isinstance(missing, BadId):
            raise
        else:
            hint = "`holdfast sessions` lists them all" if known else "the store is empty"
        raise Stop(Exit.NOT_FOUND, f"no session {shlex.quote(session)}; {hint}") from missing


async def get_thread(store: Store, name: str) -> list[Head]:
    """The sessions of the LangGraph thread with this id, or that a session of this id belongs to, the root
    namespace first; empty if it names no thread."""
    labels = thread_labels(name)
    try:
        head = await store.head(name)
    except (NotFound, BadId):
        if not name:
            return []
    else:
        if head.labels.get(ADAPTER_LABEL) != THREADS:
            return []
        labels = {THREAD_LABEL: head.labels.get(THREAD_LABEL, "")}
        if not labels[THREAD_LABEL]:
            return [head]  # Its id is empty, and no label.
    found = [one async for one in store.sessions(label=labels) if ADAPTER_LABEL in one.labels]
    graphs = [one for one in found if one.labels[ADAPTER_LABEL] == THREADS]
    ledgers = [one for one in found if one.labels[ADAPTER_LABEL] == LEDGERS]
    return sorted(graphs, key=lambda one: one.labels.get(NAMESPACE_LABEL, "")) + ledgers if graphs else []


async def get_session_or_thread(store: Store, name: str) -> list[Head]:
    """The session of this id, or all sessions of the LangGraph thread of this id."""
    return await get_thread(store, name) or [await get_head(store, name)]


async def _iter_heads(store: Store) -> AsyncIterator[Head]:
    left = IDS_MAX
    async for head in store.sessions():
        yield head
        left -= 1
        if not left:
            return


def list_ids(url: str, prefix: str) -> list[tuple[str, str]]:
    """Ids with this prefix, with their titles, for completion; empty on errors."""

    async def main() -> list[tuple[str, str]]:
        async with open_store(url, create=False) as store:
            return [(head.session, visible(shorten(head.title, 60))) async for head in _iter_heads(store)]

    try:
        found = anyio.run(main)
    except HoldfastError:
        return []
    return list(islice((row for row in found if row[0].startswith(prefix)), 100))

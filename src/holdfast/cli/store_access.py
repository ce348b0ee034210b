"""The store a command works on, and the session it names."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import Final, TypeVar

import anyio

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
"""How many ids are looked at for one that was misspelt, or completed: nobody waits for a list of millions."""


def with_store(common: Common, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
    """Do something with the store that the options name."""

    async def main() -> T:
        store = open_store(common.store, blobs=common.blobs, create=create)
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
    """The session, or an error that names those with a similar id."""
    try:
        return await store.head(session)
    except (NotFound, BadId) as missing:
        known = [head.session async for head in _some(store)]
        close = list_closest(session, known, max_count=3)
        if close:
            hint = f"did you mean {' or '.join(close)}?"
        elif isinstance(missing, BadId):
            raise
        else:
            hint = "`holdfast sessions` lists them all" if known else "the store is empty"
        raise Stop(Exit.NOT_FOUND, f"no session {shlex.quote(session)}; {hint}") from missing


async def _some(store: Store) -> AsyncIterator[Head]:
    left = IDS_MAX
    async for head in store.sessions():
        yield head
        left -= 1
        if not left:
            return


def list_ids(url: str, beginning: str) -> list[tuple[str, str]]:
    """Ids that begin like this, with their titles. A shell that completes wants no errors."""

    async def main() -> list[tuple[str, str]]:
        async with open_store(url, create=False) as store:
            return [(head.session, visible(shorten(head.title, 60))) async for head in _some(store)]

    try:
        found = anyio.run(main)
    except HoldfastError:
        return []
    return list(islice((one for one in found if one[0].startswith(beginning)), 100))

"""The store of a call or an object: one that the caller has open, or one that is opened from its URL.

A store that was given stays open. One that was opened from a URL or a path is closed by what opened it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from anyio import to_thread

from ..errors import BadInput, Closed
from ..redact import show_url
from ..system import threads
from .store import Store, open_store


class BlockingStore(Protocol):
    """A store of `holdfast.blocking`."""

    @property
    def with_loop(self) -> Store:
        """The same store for code that has an event loop."""


AnyStore: TypeAlias = "Store | BlockingStore | str | Path"
"""A store, open with or without an event loop; or a URL, or the path of a SQLite file, to open one."""


def find_open_store(given: AnyStore | None) -> Store | None:
    """The open store that was given, or None if it is to be opened. A wrong URL raises `BadUrl` at once."""
    store = getattr(given, "with_loop", given)
    if isinstance(store, Store):
        return store
    if not (given is None or isinstance(given, str | Path)):
        raise BadInput(
            f"store={show_url(given)} is not an open store: pass a URL such as 'sqlite:agents.db', a Path, "
            "or the store of `async with holdfast.open_store(…) as store` or of `with "
            "holdfast.blocking.open_store(…) as store`"
        )
    open_store(given)  # It reads the URL, and opens nothing.
    return None


@asynccontextmanager
async def use_store(given: AnyStore | None) -> AsyncIterator[Store]:
    """The store that was given, which stays open; or the one that a URL names, open for the block.

    None stands for the URL in `HOLDFAST_STORE`.
    """
    store = find_open_store(given)
    if store is not None:
        yield store
    else:
        async with open_store(address_of(given)) as own:
            yield own


class KeptStore:
    """The store of an object that uses it for as long as it lives: given, or opened when first needed."""

    def __init__(self, given: AnyStore | None) -> None:
        """None stands for the URL in `HOLDFAST_STORE`."""
        self.found = find_open_store(given)
        """The open store, as soon as there is one."""
        self._own = open_store(address_of(given)) if self.found is None else None
        self._opening = threads.Lock()
        self._closed = False

    async def get(self) -> Store:
        """The open store."""
        if self.found is None:
            # Not in the caller's event loop, as another one may need it at the same time.
            await to_thread.run_sync(self._open)
        assert self.found is not None
        return self.found

    def _open(self) -> None:
        with self._opening:
            if self._closed:
                raise Closed("the store was closed")
            if self.found is None:
                assert self._own is not None
                self._own._open_here()
                self.found = self._own

    def end(self) -> bool:
        """Open no store from now on; whether there is one that was opened here, for `aclose` to close."""
        if self._own is None:
            return False
        with self._opening:
            self._closed = True
        return self.found is not None

    async def aclose(self) -> None:
        """Close the store if it was opened here. A given one stays open."""
        if self._own is not None:
            self._closed = True
            await self._own.aclose()


def address_of(given: AnyStore | None) -> str | Path | None:
    """What `open_store` takes, of what is no open store."""
    assert given is None or isinstance(given, str | Path)
    return given

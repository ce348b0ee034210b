"""What the pages of one viewer share: the store, and what a visitor may do with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import Request

from ..cli.options import Common, user_name
from ..store.store import Store
from .answers import NeedsReader
from .listing import Listing
from .session_cache import SessionCache

Identify: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]
"""Who sends a request, for the record; None if nobody is known."""


class Viewer:
    """A store, and how it is shown."""

    def __init__(
        self,
        store: Store,
        *,
        common: Common,
        identify: Identify | None,
        allow_changes: bool,
        read_only: bool,
    ) -> None:
        self._store = store
        self.common = common
        """Where the store is, for the commands on the pages."""
        self.allow_changes = allow_changes and not read_only
        """Whether a visitor may fork and rewind."""
        self.read_only = read_only
        """Whether a visitor may change nothing at all, not even answer."""
        self.listing = Listing(lambda: self.store)
        self.sessions = SessionCache(lambda: self.store)
        self.needs = NeedsReader(lambda: self.store)
        self._identify = identify
        self._reading: Store | None = None

    @property
    def store(self) -> Store:
        """The store; in read-only mode, one to which nothing can be written."""
        if not self.read_only:
            return self._store
        if self._reading is None:
            self._reading = self._store._to_read()
        return self._reading

    async def find_visitor(self, request: Request) -> str | None:
        """The person who sends a request: as `identify=` says, else the user of this process."""
        if self._identify is None:
            try:
                return user_name(None)
            except (KeyError, OSError):  # The system has no name for this user.
                return None
        found = self._identify(request)
        name = found if isinstance(found, str) or found is None else await found
        return name.strip() or None if name else None


def viewer_of(request: Request) -> Viewer:
    """The viewer that a request came to."""
    viewer = request.app.state.viewer
    assert isinstance(viewer, Viewer)
    return viewer

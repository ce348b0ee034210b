"""The context of a tool call: what a body, or a hook, can know of its own call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio.from_thread

from ..errors import BadInput
from ..messages import Json

if TYPE_CHECKING:
    from ..session.session import Session

DepsT = TypeVar("DepsT")


class _Done:
    """An awaitable that has ended already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class ToolContext(Generic[DepsT]):
    """Handed to a tool whose first parameter is `ctx`, and to its `verify` and `undo`.

    Pass `key` on to the service: it is the same each time this operation is tried. `fence` grows with every
    holder of the session, for services that can refuse an older one.
    """

    def __init__(
        self,
        *,
        key: str,
        call_id: str,
        attempt: int,
        deps: DepsT,
        session: Session | None,
        issued_at: datetime | None,
        notes: dict[str, Json] | None = None,
        result: Json = None,
        annotate: Callable[[dict[str, Json]], Coroutine[Any, Any, None]] | None = None,
        report: Callable[[str], None] | None = None,
        in_thread: bool = False,
    ) -> None:
        self.key, self.call_id, self.attempt, self.deps = key, call_id, attempt, deps
        self.issued_at = issued_at
        self.notes = dict(notes or {})
        """What the tool noted about this effect, in earlier attempts, too."""
        self.result = result
        """For `undo`: what the tool returned."""
        self.cancelled = False
        """Becomes true when the caller no longer waits for the body; a sync body can look at it."""
        self._session, self._annotate, self._report = session, annotate, report
        self._in_thread = in_thread

    @property
    def session(self) -> Session:
        """The session of the call."""
        if self._session is None:
            raise BadInput("this call was dispatched without a session")
        return self._session

    @property
    def fence(self) -> int:
        """The fence of the lease under which the call was issued; 0 without a session."""
        return self._session.fence if self._session is not None else 0

    def annotate(self, **notes: Json) -> Awaitable[None]:
        """Note something about the effect (the vendor's id, a summary): it survives a crash.

        Durable when awaited; in a sync body, when it returns.
        """
        self.notes.update(notes)
        if self._annotate is None:
            return _Done()
        if self._in_thread:
            anyio.from_thread.run(self._annotate, notes)
            return _Done()
        return self._annotate(notes)

    def report(self, text: str) -> None:
        """Record how far the body is, without waiting for the disk."""
        if self._report is None:
            return
        if self._in_thread:
            anyio.from_thread.run_sync(self._report, text)
        else:
            self._report(text)


AnyContext = ToolContext[Any]

"""Why a run under another framework stops: a person must answer first, or a tool ends the process."""

from __future__ import annotations

from typing import Final

from ..errors import HoldfastError
from ..store.approvals import Waiting


class RunWaits(HoldfastError):
    """The run waits for a person; after the answer, the same call continues it.

    `waiting` says which calls, and what for: approval, or to know whether they happened.
    """

    def __init__(self, session: str, waiting: tuple[Waiting, ...], *, again: str) -> None:
        """`again` is the call that continues it."""
        calls = "; ".join(f"{one.tool} ({one.call}): {_WORDS[one.kind]}" for one in waiting)
        super().__init__(
            f"session {session!r} waits for a person: {calls}. See `holdfast pending`, answer with "
            f"`holdfast resolve`, `approve` or `refuse`, and call {again} again."
        )
        self.session, self.waiting = session, waiting


_WORDS: Final = {
    "approval": "needs approval",
    "in_doubt": "it is not known whether it happened",
    "delegate": "another process works on it",
}


class RunExits(BaseException):
    """A tool asked the process to end: stands for `SystemExit` or `KeyboardInterrupt` on the way out of the
    tasks that a framework runs tools in. Those two would stop asyncio's loop at once, with the calls of the
    same reply under way and the session open."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a tool asked the process to end: {type(error).__name__}")
        found = error.error if isinstance(error, RunExits) else error
        self.error: BaseException = found

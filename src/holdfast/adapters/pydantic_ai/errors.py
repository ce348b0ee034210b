"""Why a run stops: a person must answer first, or a tool asked the process to end."""

from __future__ import annotations

from ...errors import HoldfastError
from ...store.approvals import Waiting


class RunWaits(HoldfastError):
    """The run waits for a person; after the answer, the same `agent.run(…)` continues it.

    `waiting` says which calls, and what for: approval, or to know whether they happened.
    """

    def __init__(self, session: str, waiting: tuple[Waiting, ...]) -> None:
        calls = "; ".join(f"{one.tool} ({one.call}): {_WORDS[one.kind]}" for one in waiting)
        super().__init__(
            f"session {session!r} waits for a person: {calls}. See `holdfast pending`, answer with "
            "`holdfast resolve`, `approve` or `refuse`, and call agent.run(…) again."
        )
        self.session, self.waiting = session, waiting


class RunExits(BaseException):
    """A tool asked the process to end: stands for `SystemExit` or `KeyboardInterrupt` on the way out of the
    tasks that pydantic-ai runs tools in. Those two would stop asyncio's loop at once, with the calls of the
    same reply under way and the session open."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a tool asked the process to end: {type(error).__name__}")
        found = error.error if isinstance(error, RunExits) else error
        self.error: BaseException = found


_WORDS = {"approval": "needs approval", "in_doubt": "it is not known whether it happened"}

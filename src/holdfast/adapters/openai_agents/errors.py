"""Why a run stops: a person must answer first."""

from __future__ import annotations

from ...errors import HoldfastError
from ...store.approvals import Waiting


class RunWaits(HoldfastError):
    """The run waits for a person; after the answer, the same `DurableRunner.run(…)` continues it.

    `waiting` says which calls, and what for: approval, or to know whether they happened.
    """

    def __init__(self, session: str, waiting: tuple[Waiting, ...]) -> None:
        calls = "; ".join(f"{one.tool} ({one.call}): {_WORDS[one.kind]}" for one in waiting)
        super().__init__(
            f"session {session!r} waits for a person: {calls}. See `holdfast pending`, answer with "
            "`holdfast resolve`, `approve` or `refuse`, and call DurableRunner.run(…) again."
        )
        self.session, self.waiting = session, waiting


_WORDS = {
    "approval": "needs approval",
    "in_doubt": "it is not known whether it happened",
    "delegate": "another process works on it",
}

"""When an agent cannot go on before a person has said something."""

from __future__ import annotations

from ...agent.outcome import Waiting
from ...errors import HoldfastError


class RunWaits(HoldfastError):
    """The run waits for a person; once they have answered, the same `agent.run(…)` goes on.

    `waiting` says which calls, and what for: approval, or to know whether they happened.
    """

    def __init__(self, session: str, waiting: tuple[Waiting, ...]) -> None:
        calls = "; ".join(f"{one.tool} ({one.call}): {_WORDS[one.kind]}" for one in waiting)
        super().__init__(
            f"session {session!r} waits for a person: {calls}. See `holdfast pending`, answer with "
            "`holdfast resolve`, `approve` or `refuse`, and run the agent again."
        )
        self.session, self.waiting = session, waiting


_WORDS = {"approval": "needs approval", "in_doubt": "nobody knows whether it happened"}

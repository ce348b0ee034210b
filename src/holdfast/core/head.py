"""The head of a session: what listings need, and its lease."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ..ids import HolderId, SessionId
from .budget import Usage
from .entries import SessionStatus


class Lease(Struct, frozen=True, kw_only=True):
    """The holder of a session. `name` is for people; `fence` is the `seq` of the entry that took the
    lease."""

    holder: HolderId
    name: str
    fence: int


class Head(Struct, kw_only=True, omit_defaults=True, gc=False):
    """What listings need of a session without folding it: its state after entry `seq`."""

    session: SessionId
    uid: str
    seq: int
    sum: str
    status: SessionStatus
    reason: str = ""
    title: str = ""
    labels: dict[str, str] = {}
    created_at: datetime
    updated_at: datetime
    agent: str | None = None
    parent: SessionId | None = None
    origin: SessionId | None = None
    step: int = 0
    version: int = 0
    """The last version that was taken."""
    rewound_to: int | None = None
    """The version that the session went back to, if no other one was taken since."""
    messages: int = 0
    runs: int = 0
    open_run: str | None = None
    usage: Usage = Usage()
    usd: float = 0.0
    tool_calls: int = 0
    in_doubt: int = 0
    """Effects without an outcome: in doubt, or running if the holder is alive."""
    waiting: int = 0
    taken: int = 0
    due: datetime | None = None
    """When the session becomes due for a worker: it has an unanswered message, an answer that it waited for,
    or a run without an end. None while there is nothing to do."""
    postponed: bool = False
    """Whether workers wait until `due`. If not, `due` only says since when there is something to do, and the
    session is due at once, also for a worker whose clock is behind."""
    failures: int = 0
    """Failed drives in a row, without a reply in between."""
    lease: Lease | None = None
    replica: bool = False
    """True if this is a read-only copy of a session of another store. It is not in the journal: the claim
    `replica:<session>` says so."""

    @property
    def current_version(self) -> int:
        """The version that the state was built on; 0 before the first checkpoint."""
        return self.version if self.rewound_to is None else self.rewound_to

"""What can be read of an open session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.budget import BudgetState
from ..core.call_pairing import Problem
from ..core.effects import Effect
from ..core.entries import LeftBehind, SessionStatus
from ..core.fold import Checkpoint
from ..core.plan import Plan
from ..core.session_state import SessionState
from ..core.transcript_items import Messages


class SessionView(ABC):
    """The fold over the journal, in the words of the application."""

    @property
    @abstractmethod
    def state(self) -> SessionState:
        """The fold over the journal. Read it; only this session changes it."""

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        return self.state.transcript

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self.state.facts.plan

    @property
    def summary(self) -> str:
        """The running summary."""
        return self.state.facts.summary

    @property
    def budget(self) -> BudgetState:
        """Caps, and what was spent."""
        return self.state.budget

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls that were issued and whose outcome nobody knows."""
        return self.state.in_doubt

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""
        return self.state.version

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""
        return self.state.checkpoints

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would refuse the transcript; empty if it would not."""
        return self.state.problems

    @property
    def continuable(self) -> bool:
        """Whether the model can be asked to go on from here."""
        return self.state.continuable

    @property
    def status(self) -> SessionStatus:
        """What became of the last run."""
        return self.state.facts.head.status

    @property
    def labels(self) -> Mapping[str, str]:
        """What the session is filed under."""
        return dict(self.state.facts.head.labels)

    @property
    def scratchpad(self) -> Path | None:
        """Where the session keeps its files."""
        root = self.state.facts.scratchpad
        return Path(root) if root else None

    @property
    def cancel_requested(self) -> str | None:
        """Why somebody asked the session to stop, if somebody did."""
        return self.state.facts.cancel

    @property
    def keys(self) -> Sequence[str]:
        """Under which keys there is state."""
        return tuple(self.state.facts.values)

    @property
    def left_at_origin(self) -> tuple[LeftBehind, ...]:
        """Of a fork: what its origin had done in the world after the version that the fork began with."""
        return self.state.facts.left_behind

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """Effects in the world that came after a version, and that going back to it does not take back."""
        seq = self.state.get_checkpoint(version).seq if version is not None else 0
        return self.state.facts.effects.since(seq)

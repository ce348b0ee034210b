"""A replay and its differences: the report of what today's code would do differently."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..formatting import count, short_args, shorten
from ..messages import Json

DifferenceKind: TypeAlias = Literal[
    "new", "gone", "arguments", "refused", "approval", "budget", "steps", "output", "end"
]
"""`new`: a call would be made that was not. `gone`: one that was made would not be. `arguments`: it would be
made with others. `refused`: a gate would refuse it. `approval`: a person would be asked about it, or no
longer. `budget`, `steps`: the run would end where the other did not. `output`: there would be no output.
`end`: the run would end in another way."""


class Difference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference: what is on record, and what would happen `now`. Turns and replies count from 1."""

    kind: DifferenceKind
    turn: int
    reply: int = 0
    tool: str = ""
    args: Json = None
    gate: str = ""
    recorded: str = ""
    now: str = ""

    def __str__(self) -> str:
        place = f"turn {self.turn}" + (f", reply {self.reply}" if self.reply else "")
        call = f" {self.tool}({short_args(self.args)})" if self.tool else ""
        gate = f" by gate {self.gate!r}" if self.gate else ""
        return f"{place}: {self.kind}{gate}{call}\n  recorded: {self.recorded}\n  now: {self.now}"


class SessionReplay(Struct, frozen=True, kw_only=True):
    """What today's code does with a recorded session. Nothing was executed for it."""

    session: str
    agent: str | None
    version: int
    turns: int
    replies: int
    """How many replies are on record, from the version on."""
    given: int
    """How many of them were given; with a live model, how many replies it made."""
    live: bool
    differences: tuple[Difference, ...]
    changes: tuple[str, ...] = ()
    """What has changed about the agent since its last run. A change of the prompt changes no recorded reply:
    only a live model shows what comes of it."""
    stopped: str = ""
    """Why the rest was not replayed."""

    @property
    def differs(self) -> bool:
        """Whether today's code would do anything differently."""
        return bool(self.differences)

    @property
    def first(self) -> Difference | None:
        """The first difference."""
        return self.differences[0] if self.differences else None

    def __str__(self) -> str:
        lines = [f"session {self.session}: {self.summary}"]
        lines += [f"changed since: {one}" for one in self.changes]
        lines += [str(one) for one in self.differences]
        if self.stopped:
            lines.append(f"not replayed further: {self.stopped}")
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """In a few words."""
        said = (
            count(self.given, "reply", "replies") if self.live else f"{self.given} of {self.replies} replies"
        )
        found = count(len(self.differences), "difference") if self.differs else "no difference"
        return f"{found}, {said}, {count(self.turns, 'turn')}"


def describe(text: str) -> str:
    """A text in a line of a report."""
    return shorten(" ".join(text.split()), 300)

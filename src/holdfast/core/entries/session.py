"""A session: its beginning, who holds it, its labels and its end."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from ..plan import Plan
from .base import Body, Span, kind


class Parent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who started this: a run, in a session, perhaps by a call."""

    session: str | None = None
    run: str | None = None
    call: str | None = None


@kind("session.opened")
class SessionOpened(Body, frozen=True):
    """The first line of a session that is not a fork. `uid` is random: a session that was deleted and
    made anew under the same id is another one. `agent` is who is to work on it."""

    uid: str
    labels: dict[str, str] = {}
    parent: Parent | None = None
    agent: str | None = None


class LeftBehind(Struct, frozen=True, kw_only=True):
    """An effect in the world that a fork or a rewind does not take back."""

    issued: int
    tool: str
    call: str
    status: str


@kind("session.forked", must=True)
class SessionForked(Body, frozen=True):
    """The first line of a fork: its journal goes on where entry `seq` of the origin's ended."""

    uid: str
    origin: str
    origin_uid: str
    version: int
    labels: dict[str, str] = {}
    left_behind: tuple[LeftBehind, ...] = ()
    """Effects of the origin that came after the version: they happened, and the fork does not know them."""


@kind("lease.taken", must=True)
class LeaseTaken(Body, frozen=True):
    """From here on, only `holder` writes. The line's `seq` is the fence."""

    holder: str
    name: str


@kind("lease.renewed")
class LeaseRenewed(Body, frozen=True):
    """The holder was silent for a whole term, and found that nobody had taken its place."""


@kind("lease.released")
class LeaseReleased(Body, frozen=True):
    """Nobody holds the session any more."""


@kind("session.labelled")
class SessionLabelled(Body, frozen=True):
    """Labels set, or removed where the value is None."""

    labels: dict[str, str | None]


SessionStatus: TypeAlias = Literal["active", "waiting", "completed", "failed", "cancelled"]


@kind("session.closed")
class SessionClosed(Body, frozen=True):
    """The status was set by hand."""

    status: SessionStatus
    reason: str = ""


@kind("session.postponed")
class SessionPostponed(Body, frozen=True):
    """No worker drives it before `until`; without one, before there is something new."""

    until: datetime | None = None
    reason: str = ""


@kind("session.rewound", must=True)
class SessionRewound(Body, frozen=True):
    """What came after `version` is left behind. Carries what it restores, so that folding needs no I/O;
    the ledger, the spending, the runs and the counters stay."""

    version: int
    seq: int
    transcript: tuple[Span, ...]
    state: dict[str, Raw] = {}
    plan: Plan | None = None
    summary: str = ""


@kind("session.erased")
class SessionErased(Body, frozen=True):
    """Somebody erased what messages and results up to entry `upto` said."""

    upto: int


@kind("session.scratchpad")
class ScratchpadSet(Body, frozen=True):
    """Where the session keeps its files."""

    root: str

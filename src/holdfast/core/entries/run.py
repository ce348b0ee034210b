"""Runs, requests to models, and messages."""

from __future__ import annotations

from datetime import datetime

from ...messages import OWN, Json, Part, Role
from ..budget import Reservation, Usage
from .base import Body, Span, kind
from .session import Parent


@kind("run.started")
class RunStarted(Body, frozen=True):
    """`instructions` and each of `tools` by digest; `continues` names the run that had no end; `trace` is the
    W3C traceparent under which the run was reported."""

    agent: str | None = None
    model: str | None = None
    instructions: str | None = None
    tools: dict[str, str] = {}
    parent: Parent | None = None
    continues: str | None = None
    config: Json = None
    trace: str | None = None


@kind("run.completed")
class RunCompleted(Body, frozen=True):
    """It came to its end."""

    output: Json = None


@kind("run.failed")
class RunFailed(Body, frozen=True):
    """It ended with an error, a spent budget or a step limit. `retry_at`: a worker tries again then."""

    reason: str
    error: str = ""
    retry_at: datetime | None = None


@kind("run.cancelled")
class RunCancelled(Body, frozen=True):
    """The caller, or somebody through the inbox, stopped it."""

    reason: str = ""


@kind("run.paused")
class RunPaused(Body, frozen=True):
    """It waits for a person."""

    reason: str = ""


@kind("delegate.started")
class DelegateStarted(Body, frozen=True):
    """Another session works for this one; what it may spend at most counts as spent until it has ended."""

    session: str
    reserved: Reservation = Reservation()
    steps: int = 0


@kind("delegate.ended")
class DelegateEnded(Body, frozen=True):
    """It has ended, or waits. What it has spent in all, since it was first started."""

    session: str
    usage: Usage = Usage()
    cost_usd: float = 0.0
    steps: int = 0


@kind("model.requested")
class ModelRequested(Body, frozen=True):
    """A request is about to be made; what it may cost counts as spent until its outcome is known."""

    model: str | None = None
    reserved: Reservation = Reservation()


@kind("model.replied")
class ModelReplied(Body, frozen=True):
    """The reply, a message of the transcript: its content is the message itself. `request` is the `seq` of
    its `model.requested`; `model` is the one that answered, if it was named."""

    role: Role = "assistant"
    parts: tuple[Part, ...] = ()
    format: str = OWN
    request: int | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    latency_ms: float | None = None
    model: str | None = None


@kind("model.failed")
class ModelFailed(Body, frozen=True):
    """The request came to nothing; `cost_usd` is what it cost all the same."""

    request: int | None = None
    error: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0


@kind("message.added")
class MessageAdded(Body, frozen=True):
    """A message: its content is the message itself, in `format`. One that came through the inbox has its
    number, and waits for the end of the step."""

    role: Role
    parts: tuple[Part, ...] = ()
    format: str = OWN
    inbox: int | None = None


@kind("transcript.compacted", must=True)
class TranscriptCompacted(Body, frozen=True):
    """The messages recorded by the entries of `span` are replaced by the content, a message."""

    span: Span

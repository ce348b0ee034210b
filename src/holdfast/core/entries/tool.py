"""Tool calls, from the wish to the outcome. A `tool.issued` line is event, intent and ledger row in one."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from ...messages import Json
from ...system.clock import Instant
from .base import Body, kind


class CallRef(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which call: the `index`-th of the reply at entry `reply`, or one that a caller made by itself.
    `id` is the provider's or the caller's. A caller whose transcript has messages of its own for the results
    says with `of` which reply, and with `index` which call of it, it carries out."""

    id: str
    reply: int | None = None
    index: int = 0
    of: int | None = None

    @property
    def asked_by(self) -> int | None:
        """The reply that asked for it, in whatever way it is carried out."""
        return self.of if self.reply is None else self.reply

    def comes_after(self, other: CallRef) -> bool:
        """Whether it is a later call of the same reply."""
        return self.reply is not None and self.reply == other.reply and self.index > other.index


class ResultContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a line that answers a call: the text that the model is shown, and the same as data.

    `parts` are blocks, if the model is shown more than text. `full` refers to the whole text where `text` is
    only its beginning and its end, and `chars` says how long that is.
    """

    text: str = ""
    value: Json = None
    parts: list[dict[str, Json]] = []
    full: str = ""
    chars: int = 0


@kind("tool.issued", must=True)
class ToolIssued(Body, frozen=True):
    """The intent: durable before the body of a tool with side effects is entered."""

    call: CallRef
    tool: str
    args: Json
    fingerprint: str
    """Of the tool and its arguments, for telling repeated calls."""
    operation: str
    scope: str
    side_effects: tuple[str, ...] = ()
    key: str = ""
    generation: int = 0
    attempt: int = 1
    timeout_s: float | None = None
    undoes: int | None = None
    """The intent of the effect that this one takes back."""
    clock: Instant | None = None
    """When, of an effect: the wall clock of `at` may be set, and differs between machines."""


@kind("tool.annotated")
class ToolAnnotated(Body, frozen=True):
    """What a tool noted about its own effect while it ran. `issued` is the `seq` of the intent."""

    issued: int
    notes: dict[str, Json]


@kind("tool.reported")
class ToolReported(Body, frozen=True):
    """Progress, while it runs: the content is the text."""

    issued: int


@kind("tool.completed", must=True)
class ToolCompleted(Body, frozen=True):
    """The outcome; its content is the result in the transcript."""

    call: CallRef
    issued: int | None = None
    """None for a replay: then `original` is the intent whose outcome it repeats, of the call `replay_of`."""
    original: int | None = None
    replay_of: str | None = None
    fingerprint: str = ""
    latency_ms: float | None = None


@kind("tool.ran", must=True)
class ToolRan(Body, frozen=True):
    """Intent and outcome in one: a harmless call that ended before anything else could happen. Its content is
    the result in the transcript."""

    call: CallRef
    tool: str
    args: Json
    fingerprint: str
    side_effects: tuple[str, ...] = ()
    latency_ms: float | None = None


@kind("tool.failed", must=True)
class ToolFailed(Body, frozen=True):
    """Surely nothing happened. `final` says that no retry follows, so this is the call's result. In a
    delegate, `issued` is None if the intent is in the root's journal."""

    call: CallRef
    issued: int | None
    error: str = ""
    final: bool = True
    retry: bool = False
    """The tool itself asked for another call: making it is no loop."""


@kind("tool.refused")
class ToolRefused(Body, frozen=True):
    """A gate refused the call (`name`, `arguments`, `loop`, `policy`, `in_doubt`); its body was not
    entered."""

    call: CallRef
    tool: str
    gate: str
    fingerprint: str = ""


@kind("tool.in_doubt", must=True)
class ToolInDoubt(Body, frozen=True):
    """Issued, and nobody knows whether it happened. `told`: the content is the call's result for now."""

    call: CallRef
    issued: int
    why: str
    told: bool = False
    left_behind: bool = False
    """Its body cannot be stopped and ran on: only the end of its process is proof that it is over."""
    exited: bool = False
    """Its body asked the process to end. That counts like a crash."""


@kind("tool.discarded")
class ToolDiscarded(Body, frozen=True):
    """Issued without outcome, and harmless: it is simply run again."""

    call: CallRef
    issued: int
    exited: bool = False
    """Its body asked the process to end. That counts like a crash."""


Verdict: TypeAlias = Literal["landed", "not_landed", "gave_up"]


@kind("tool.settled", must=True)
class ToolSettled(Body, frozen=True):
    """What became of a call in doubt, by the tool's own verify hook or by a person. `told`: the content is
    the call's result."""

    call: CallRef
    issued: int
    verdict: Verdict
    by: str
    note: str = ""
    told: bool = False
    void: bool = False
    """It did not land, and the service refuses its key from now on: the next try needs another one."""


@kind("tool.undone", must=True)
class ToolUndone(Body, frozen=True):
    """The effect was taken back, by the effect issued at `by`."""

    issued: int
    by: int


@kind("approval.asked", must=True)
class ApprovalAsked(Body, frozen=True):
    """A person must agree before the call is made."""

    call: CallRef
    tool: str
    args: Json
    fingerprint: str = ""
    why: str = ""


@kind("approval.given", must=True)
class ApprovalGiven(Body, frozen=True):
    """Agreed, perhaps with other arguments. `asked` is the `seq` of the question."""

    call: CallRef
    asked: int
    by: str
    args: Json | UnsetType = UNSET
    note: str = ""


@kind("approval.refused", must=True)
class ApprovalRefused(Body, frozen=True):
    """Not agreed; the content is what the model is told."""

    call: CallRef
    asked: int
    by: str

"""What others sent to the holder of the session."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from ...messages import OWN, Json, Part, Role
from .base import Body, kind
from .tool import Verdict


class InboxMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="message"):
    """Somebody submitted a message. Equal `key`s are one submission."""

    message: Raw | UnsetType = UNSET
    role: Role = "user"
    parts: tuple[Part, ...] = ()
    format: str = OWN
    key: str | None = None
    agent: str | None = None


class InboxCancel(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="cancel"):
    """Somebody asks the session to stop."""

    by: str = ""
    reason: str = ""


class InboxVerdict(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="verdict"):
    """A person, or a holder that is out, says what became of the call issued at `issued`."""

    issued: int
    verdict: Verdict
    by: str
    note: str = ""
    content: str | None = None
    value: Json = None


class InboxApproval(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="approval"):
    """A person answers the question asked at `asked`."""

    asked: int
    approved: bool
    by: str
    args: Json | UnsetType = UNSET
    note: str = ""


InboxItem: TypeAlias = InboxMessage | InboxCancel | InboxVerdict | InboxApproval


@kind("inbox.taken", must=True)
class InboxTaken(Body, frozen=True):
    """Item `number` of the inbox, and what it said; a number that was taken in before is skipped. What a
    message said is in the `message.added` that follows in the same commit, so that it can be erased."""

    number: int
    item: InboxItem
    late: bool = False
    """It answered a line that was no longer open, and changes nothing."""

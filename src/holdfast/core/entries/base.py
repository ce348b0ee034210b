"""The envelope, the register of kinds, and what stands in for a body that is not known."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

from msgspec import Raw, Struct

from ...messages import Json


class Body(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The base of every body."""


_B = TypeVar("_B", bound=type[Body])
KINDS: dict[str, type[Body]] = {}
KIND_OF: dict[type[Body], str] = {}
MUST: set[type[Body]] = set()


def kind(name: str, *, must: bool = False) -> Callable[[_B], _B]:
    def register(body: _B) -> _B:
        KINDS[name] = body
        KIND_OF[body] = name
        if must:
            MUST.add(body)
        return body

    return register


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """One fact about a session.

    The body is what the fold needs to know. The content is what people, models and tools said, as JSON;
    it can be erased (None, and `erased` is true) without the fold forgetting what was done.
    """

    seq: int
    at: datetime
    run: str | None
    step: int
    kind: str
    must: bool
    body: Body
    content: Raw | None = None
    erased: bool = False


class UnknownBody(Body, frozen=True):
    """The body of a kind that a newer version wrote."""

    data: Raw


class AdapterBody(Body, frozen=True):
    """The body of an adapter's own kind."""

    data: Json = None


class Span(NamedTuple):
    """The entries from `first` to `last`, both included."""

    first: int
    last: int


ADAPTER_PREFIX = "adapter."


def body_class(kind: str) -> type[Body]:
    """The class that decodes bodies of this kind; `UnknownBody` for one that a newer version wrote."""
    found = KINDS.get(kind)
    if found is not None:
        return found
    return AdapterBody if kind.startswith(ADAPTER_PREFIX) else UnknownBody

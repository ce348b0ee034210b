"""What a tool of a durable run can know about its own call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from ...errors import BadInput
from ...messages import Json
from ...tools.context import AnyContext

_effect: ContextVar[AnyContext | None] = ContextVar("holdfast_pydantic_ai_effect", default=None)
Ordinals: TypeAlias = dict[str, int]
_delegates: ContextVar[Ordinals | None] = ContextVar("holdfast_pydantic_ai_delegates", default=None)


def current_effect() -> AnyContext:
    """The effect that the tool around the caller carries out: its `key` to hand on to a service, its `fence`,
    its `attempt`. `BadInput` outside of a tool of a durable run."""
    found = find_effect()
    if found is None:
        raise BadInput("current_effect() and annotate() are for tools of an agent with Durable(…)")
    return found


def find_effect() -> AnyContext | None:
    """The effect around the caller, if there is one."""
    return _effect.get()


async def annotate(**notes: Json) -> None:
    """Note something about the effect that the tool carries out (the vendor's id, a summary). Durable on
    return; it survives completion and crash."""
    await current_effect().annotate(**notes)


@contextmanager
def effect_around(effect: AnyContext) -> Iterator[None]:
    """While a tool runs."""
    token, counted = _effect.set(effect), _delegates.set({})
    try:
        yield
    finally:
        _delegates.reset(counted)
        _effect.reset(token)


def count_delegate(agent: str) -> int:
    """How many runs of this agent the tool around the caller has begun, this one included."""
    counts = _delegates.get()
    assert counts is not None, "only a tool has delegates"
    counts[agent] = counts.get(agent, 0) + 1
    return counts[agent]

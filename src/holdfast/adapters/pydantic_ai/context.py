"""What a tool of a durable run can know about its own call."""

from __future__ import annotations

from ...messages import Json
from ...tools.context import AnyContext
from ..effect_context import EffectContext

EFFECT = EffectContext("pydantic_ai", "tools of an agent with Durable(…)")


def current_effect() -> AnyContext:
    """The effect that the tool around the caller carries out: its `key` to hand on to a service, its `fence`,
    its `attempt`. `BadInput` outside of a tool of a durable run."""
    return EFFECT.get()


async def annotate(**notes: Json) -> None:
    """Note something about the effect that the tool carries out (the vendor's id, a summary). Durable on
    return; it survives completion and crash."""
    await EFFECT.get().annotate(**notes)

"""What a tool of a framework can know about the call that it carries out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import BadInput
from ..tools.context import AnyContext


class EffectContext:
    """The effect around the caller, in the tools of one adapter."""

    def __init__(self, adapter: str, place: str) -> None:
        """`place` says in which tools there is one."""
        self._effect: ContextVar[AnyContext | None] = ContextVar(f"holdfast_{adapter}_effect", default=None)
        self._delegates: ContextVar[dict[str, int] | None] = ContextVar(
            f"holdfast_{adapter}_delegates", default=None
        )
        self._place = place

    def get(self) -> AnyContext:
        """The effect; `BadInput` outside of such a tool."""
        found = self.find()
        if found is None:
            raise BadInput(f"current_effect() and annotate() are for {self._place}")
        return found

    def find(self) -> AnyContext | None:
        """The effect, if there is one."""
        return self._effect.get()

    @contextmanager
    def around(self, effect: AnyContext) -> Iterator[None]:
        """While a tool runs."""
        token, counted = self._effect.set(effect), self._delegates.set({})
        try:
            yield
        finally:
            self._delegates.reset(counted)
            self._effect.reset(token)

    def count_delegate(self, agent: str) -> int:
        """How many runs of this agent the tool around the caller has begun, this one included."""
        counts = self._delegates.get()
        assert counts is not None, "only a tool has delegates"
        counts[agent] = counts.get(agent, 0) + 1
        return counts[agent]

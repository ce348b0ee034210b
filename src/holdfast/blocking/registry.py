"""The registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from ..core.effects import Effect, Undone
from ..limits import CRASHES_MAX, REPEATS_MAX, TOOL_GRACE_S
from ..messages import Json
from ..store.approvals import Doubt
from ..tools import registry as async_registry
from ..tools.declaration import AnyTool
from ..tools.outcome import Result
from ..tools.policy import Policy
from ..tools.runner import InDoubtPolicy
from .session import Session
from .store import Store


class Registry:
    """`holdfast.Registry` without an event loop. Async tools run in the store's."""

    def __init__(
        self,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        *,
        policy: Policy | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = REPEATS_MAX,
        max_crashes: int = CRASHES_MAX,
        grace_s: float = TOOL_GRACE_S,
    ) -> None:
        self._registry = async_registry.Registry(
            tools,
            policy=policy,
            in_doubt=in_doubt,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            grace_s=grace_s,
        )

    @property
    def with_loop(self) -> async_registry.Registry:
        """The same tools for code that has an event loop."""
        return self._registry

    @property
    def tools(self) -> Mapping[str, AnyTool]:
        """The tools by name."""
        return self._registry.tools

    def add(self, given: AnyTool | Callable[..., Any]) -> AnyTool:
        """One more tool."""
        return self._registry.add(given)

    def schemas(self, provider: async_registry.Provider = "json") -> list[dict[str, Json]]:
        """The tools as a provider wants to be told of them."""
        return self._registry.schemas(provider)

    def dispatch(
        self,
        name: str,
        args: Json,
        *,
        call_id: str | None = None,
        session: Session | None = None,
        deps: Any = None,
    ) -> Result:
        """Take one call through the gates and, with a session, through the ledger."""
        if session is None:
            return anyio.run(partial(self._registry.dispatch, name, args, call_id=call_id, deps=deps))
        work = self._registry.dispatch(name, args, call_id=call_id, session=session._session, deps=deps)
        return session._loop.wait(work)

    def dispatch_step(self, session: Session, *, deps: Any = None) -> list[Result]:
        """The calls of the last reply, together."""
        return session._loop.wait(self._registry.dispatch_step(session._session, deps=deps))

    def settle(self, session: Session, *, deps: Any = None, policy: str | None = None) -> list[Effect]:
        """Find out what became of the calls in doubt; those that stay in doubt."""
        return session._loop.wait(self._registry.settle(session._session, deps=deps, policy=policy))

    def settle_all(self, store: Store, *, deps: Any = None, policy: str | None = None) -> list[Doubt]:
        """Settle what is in doubt in every session of a store that nobody holds."""
        return store._loop.wait(self._registry.settle_all(store._store, deps=deps, policy=policy))

    def undo(self, session: Session, effects: Sequence[Effect], *, deps: Any = None) -> list[Undone]:
        """Take effects back, the last first."""
        return session._loop.wait(self._registry.undo(session._session, effects, deps=deps))

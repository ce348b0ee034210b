"""The agent."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic

from ..agents import agent as async_agent
from ..agents.agent import DepsT
from ..agents.loop import Compact
from ..agents.model import Model
from ..agents.outcome import Event, Outcome, OutputT
from ..agents.prices import Price
from ..core.budget import Budget
from ..core.entries import Parent
from ..errors import BadInput
from ..limits import (
    CRASHES_MAX,
    REPEATS_MAX,
    REPLY_TOKENS_MAX,
    RESUME_CONCURRENCY,
    STEPS_MAX,
    TOOL_GRACE_S,
)
from ..messages import ForeignMessage, Message
from ..session import session as async_session
from ..session.cadence import Cadence
from ..store import store as async_store
from ..tools.declaration import AnyTool, Retry
from ..tools.policy import Policy
from ..tools.registry import Registry
from ..tools.runner import InDoubtPolicy
from .loop import Loop
from .session import Session
from .store import Store, open_store


class Agent(Generic[DepsT, OutputT]):
    """`holdfast.Agent` without an event loop. Models and async tools run in the store's."""

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        instructions: str = "",
        budget: Budget | None = None,
        policy: Policy | None = None,
        name: str | None = None,
        max_steps: int = STEPS_MAX,
        output_type: type[OutputT] | None = None,
        price: Price | None = None,
        max_tokens: int = REPLY_TOKENS_MAX,
        retry: Retry = async_agent.MODEL_RETRY,
        compact: Compact | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = REPEATS_MAX,
        max_crashes: int = CRASHES_MAX,
        grace_s: float = TOOL_GRACE_S,
    ) -> None:
        self.name = name
        self._agent: async_agent.Agent[DepsT, OutputT] = async_agent.Agent(
            model,
            tools=tools,
            instructions=instructions,
            budget=budget,
            policy=policy,
            name=name,
            max_steps=max_steps,
            output_type=output_type,
            price=price,
            max_tokens=max_tokens,
            retry=retry,
            compact=compact,
            in_doubt=in_doubt,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            grace_s=grace_s,
        )

    @property
    def registry(self) -> Registry:
        """Its tools, for `session.settle` and `session.rewind`."""
        return self._agent.registry

    def run(
        self,
        message: str | Message | ForeignMessage,
        *,
        session: str | Session | None = None,
        store: Store | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Give the agent a message, and drive the session until there is an outcome."""
        with _reach(session, store) as (loop, given, own):
            work = self._agent.run(
                message,
                session=given,
                store=own,
                deps=deps,
                run_id=run_id,
                parent=parent,
                labels=labels,
                cadence=cadence,
                wait_s=wait_s,
            )
            return loop.wait(work)

    def resume(
        self,
        session: str | Session,
        *,
        store: Store | None = None,
        deps: DepsT | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Go on where the session stands."""
        with _reach(session, store) as (loop, given, own):
            assert given is not None
            return loop.wait(self._agent.resume(given, store=own, deps=deps, cadence=cadence, wait_s=wait_s))

    def stream(
        self,
        message: str | Message | ForeignMessage | None = None,
        *,
        session: str | Session | None = None,
        store: Store | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Generator[Event[OutputT], None, None]:
        """The same as it happens; the outcome comes last. Who stops listening cancels the run."""
        with _reach(session, store) as (loop, given, own):
            events = self._agent.stream(
                message,
                session=given,
                store=own,
                deps=deps,
                run_id=run_id,
                parent=parent,
                labels=labels,
                cadence=cadence,
                wait_s=wait_s,
            )
            yield from loop.iterate(events)

    def resume_all(
        self, store: Store, *, concurrency: int = RESUME_CONCURRENCY, deps: DepsT | None = None
    ) -> list[Outcome[OutputT]]:
        """Take up every session whose last run was this agent's, has no end, and is driven by nobody."""
        return store._loop.wait(self._agent.resume_all(store._store, concurrency=concurrency, deps=deps))

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AnyTool:
        """This agent as a tool of another: a delegate."""
        return self._agent.as_tool(name=name, description=description)


@contextmanager
def _reach(
    session: str | Session | None, store: Store | None
) -> Iterator[tuple[Loop, str | async_session.Session | None, async_store.Store | None]]:
    """The event loop to work in, and what the async agent is given for these."""
    if isinstance(session, Session):
        yield session._loop, session._session, None
    elif store is not None:
        if not isinstance(store, Store):
            raise BadInput(
                f"store={store!r} is not an open store: `with blocking.open_store(…) as store` gives one"
            )
        yield store._loop, session, store._store
    else:
        with open_store() as own:
            yield own._loop, session, own._store

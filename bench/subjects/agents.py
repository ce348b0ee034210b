"""A whole pydantic-ai agent: a model that says 1 KB and calls a tool that returns 1 KB, step after step."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Literal

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

import holdfast
from bench.subjects.contract import Place
from holdfast.adapters.pydantic_ai import Durable, effects


class Bare:
    """Without persistence: what the framework itself costs. One run; the model waits for the texts."""

    _side_effect: ClassVar[Literal["read", "mutate"]] = "read"

    def _capabilities(self) -> list[Any]:
        return []

    async def _open_store(self, place: Place) -> None:
        """Whatever the capabilities need."""

    async def _close_store(self) -> None:
        """Let go of it."""

    async def open(self, place: Place, sessions: int) -> None:
        assert sessions == 1
        await self._open_store(place)
        self._said: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        self._asked = asyncio.Event()
        self._messages = 0
        self._found = ""
        agent: Agent[None, str] = Agent(FunctionModel(self._answer), name="bench")
        agent.tool_plain(metadata=effects(side_effects={self._side_effect}))(self._look)
        self._run: asyncio.Future[Any] | None = asyncio.ensure_future(
            agent.run("go", usage_limits=UsageLimits(request_limit=None), capabilities=self._capabilities())
        )
        await self._wait_until_asked()

    async def reopen(self, place: Place) -> None:
        self._run = None
        await self._open_store(place)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self._messages = len(messages)
        self._asked.set()
        pair = await self._said.get()
        if pair is None:
            return ModelResponse(parts=[TextPart("done")])
        self._found = pair[1]
        return ModelResponse(parts=[TextPart(pair[0]), ToolCallPart("_look", {"number": len(messages)})])

    async def _look(self, number: int) -> str:
        """Look something up."""
        return self._found

    async def _wait_until_asked(self) -> None:
        """The model is asked for the next reply once the last step is over."""
        assert self._run is not None
        asked = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait([asked, self._run], return_when=asyncio.FIRST_COMPLETED)
        if self._run.done():
            self._run.result()
        self._asked.clear()

    async def step(self, session: int, first: str, second: str) -> None:
        self._said.put_nowait((first, second))
        await self._wait_until_asked()

    async def load(self, session: int) -> int:
        """Nothing is kept."""
        return self._messages - 1

    async def close(self) -> None:
        if self._run is not None:
            self._said.put_nowait(None)
            await self._run
        await self._close_store()


class WithDurable(Bare):
    """With `Durable` on SQLite."""

    async def _open_store(self, place: Place) -> None:
        self._opening = holdfast.open_store(f"sqlite:{place.directory}/agents.db")
        self._store = await self._opening.__aenter__()

    def _capabilities(self) -> list[Any]:
        return [Durable(self._store, session="bench")]

    async def load(self, session: int) -> int:
        found = await self._store.load("bench")
        return len(list(found.transcript)) - 1

    async def _close_store(self) -> None:
        await self._opening.__aexit__(None, None, None)


class WithDurableEffects(WithDurable):
    """And a tool that changes something: it waits for the disk twice more."""

    _side_effect = "mutate"


class WithStepPersistence(Bare):
    """With the step persistence of pydantic-ai-harness, on SQLite."""

    async def _open_store(self, place: Place) -> None:
        from pydantic_ai_harness.step_persistence import SqliteStepStore

        self._steps = SqliteStepStore(database=str(place.directory / "steps.db"))

    def _capabilities(self) -> list[Any]:
        from pydantic_ai_harness.step_persistence import StepPersistence

        return [StepPersistence(store=self._steps)]

    async def load(self, session: int) -> int:
        (run,) = await self._steps.list_runs()
        found = await self._steps.latest_snapshot(run_id=run.run_id, include_interrupted=True)
        return len(found.messages) - 1 if found else 0

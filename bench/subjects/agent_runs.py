"""A run of the OpenAI Agents SDK: a model says 1 KB and calls a tool that returns 1 KB, step after step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from bench.subjects.contract import Place
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effects

_TURNS_MAX = 10**9
_SESSION = "bench"


class _Asked(Model):
    """The model: it waits for the texts."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> Any:
        output = await self._answer([] if isinstance(input, str) else input)
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *more: Any, **named: Any
    ) -> AsyncIterator[Any]:
        response = Response(
            id="r",
            created_at=0,
            model="bench",
            object="response",
            output=await self._answer([] if isinstance(input, str) else input),
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


class Bare:
    """`Runner.run` without a session: what the SDK itself costs. One run."""

    def _session(self, place: Place) -> Any:
        """Whatever keeps it."""
        return None

    _runner: ClassVar[type[Runner] | type[DurableRunner]] = Runner
    _streams: ClassVar[bool] = False

    async def _start(self, agent: Agent[Any]) -> Any:
        options: Any = {"session": self._kept, "max_turns": _TURNS_MAX}
        if not self._streams:
            return await self._runner.run(agent, "go", **options)
        result = self._runner.run_streamed(agent, "go", **options)
        async for _ in result.stream_events():
            pass
        return result

    def _tool(self, tool: FunctionTool) -> FunctionTool:
        return tool

    async def open(self, place: Place, sessions: int) -> None:
        assert sessions == 1
        set_tracing_disabled(True)
        self._kept = self._session(place)
        self._said: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        self._asked = asyncio.Event()
        self._items: list[Any] = []
        self._found = ""
        look = self._tool(function_tool(self._look, name_override="look"))
        agent = Agent(name="bench", model=_Asked(self._answer), tools=[look])
        self._run: asyncio.Future[Any] | None = asyncio.ensure_future(self._start(agent))
        await self._wait_until_asked()

    async def reopen(self, place: Place) -> None:
        self._run = None
        self._kept = self._session(place)

    async def _answer(self, items: list[Any]) -> list[Any]:
        self._items = items
        self._asked.set()
        pair = await self._said.get()
        said = "done" if pair is None else pair[0]
        text = ResponseOutputText(annotations=[], text=said, type="output_text")
        number = str(len(items))
        message = ResponseOutputMessage(
            id=f"m{number}", content=[text], role="assistant", status="completed", type="message"
        )
        if pair is None:
            return [message]
        self._found = pair[1]
        arguments = json.dumps({"number": len(items)})
        call = ResponseFunctionToolCall(
            arguments=arguments, call_id=f"c{number}", name="look", type="function_call"
        )
        return [message, call]

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
        """Without the prompt, and without the calls themselves, which the texts stand for."""
        found = self._items if self._kept is None else await self._kept.get_items()
        count: int = sum(item.get("type") != "function_call" for item in found)
        return count - 1

    async def close(self) -> None:
        if self._run is not None:
            self._said.put_nowait(None)
            await self._run
        if self._kept is not None:
            self._kept.close()


class Streamed(Bare):
    """`Runner.run_streamed`, whose events are read as they come."""

    _streams = True


class WithSqliteSession(Bare):
    """With the SDK's own session."""

    def _session(self, place: Place) -> Any:
        return SQLiteSession(_SESSION, place.directory / "agents.db")


class WithDurableRunner(Bare):
    """`DurableRunner.run` on SQLite."""

    _runner = DurableRunner
    _side_effect: ClassVar[Any] = "read"

    def _session(self, place: Place) -> Any:
        return HoldfastSession(_SESSION, f"sqlite:{place.directory}/agents.db")

    def _tool(self, tool: FunctionTool) -> FunctionTool:
        return effects(side_effects=self._side_effect)(tool)

    async def close(self) -> None:
        kept, self._kept = self._kept, None
        await super().close()
        await kept.aclose()


class WithDurableEffects(WithDurableRunner):
    """And a tool that changes something: it waits for the disk twice more."""

    _side_effect = "mutate"


class DurableStreamed(WithDurableRunner):
    """`DurableRunner.run_streamed`."""

    _streams = True

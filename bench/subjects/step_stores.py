"""The step stores of pydantic-ai-harness and ours, given what its capability gives them.

A step is the events of a request and of a tool call, the two records of the call's effect, and the whole
history so far, which grows by a reply and a result.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    FileStepStore,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepStore,
    ToolEffectRecord,
)

import holdfast
from bench.subjects.contract import Place
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore


class Run:
    """One run, and its history."""

    def __init__(self, store: StepStore, number: int) -> None:
        self._store, self.id, self._step = store, f"run-{number}", 0
        self._messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(content="Go")])]

    async def register(self) -> None:
        """It begins."""
        await self._store.register_run(
            RunRecord(run_id=self.id, conversation_id="c", agent_name="clerk", registration_id="r")
        )

    async def step(self, said: str, found: str) -> None:
        """A reply with a call, its result, and the history with both."""
        step = self._step
        self._step += 1
        call: dict[str, Any] = {"tool_call_id": f"call_{step}", "tool_name": "look"}
        await self._note(0, "model_request_started")
        await self._note(1, "model_request_completed")
        await self._store.record_tool_effect(ToolEffectRecord(run_id=self.id, status="started", **call))
        await self._note(2, "tool_call_started", **call)
        prior = await self._store.get_tool_effect(run_id=self.id, tool_call_id=call["tool_call_id"])
        assert prior is not None
        await self._store.record_tool_effect(
            ToolEffectRecord(run_id=self.id, status="completed", started_at=prior.started_at, **call)
        )
        await self._note(3, "tool_call_completed", **call)
        reply = ModelResponse(
            parts=[TextPart(content=said), ToolCallPart(args={"step": step}, **call)],
            usage=RequestUsage(input_tokens=1_000 + 500 * step, output_tokens=300),
            model_name="model-1",
        )
        self._messages += [reply, ModelRequest(parts=[ToolReturnPart(content=found, **call)])]
        await self._store.save_snapshot(
            ContinuableSnapshot(
                run_id=self.id,
                step_index=step,
                messages=list(self._messages),
                conversation_id="c",
                agent_name="clerk",
                idempotency_key=f"{step}:{step}:complete",
            )
        )

    async def _note(self, number: int, kind: Any, **more: Any) -> None:
        key = f"{4 * self._step + number}:{self._step}:{kind}:{more.get('tool_call_id', '')}"
        await self._store.append_event(
            StepEvent(
                run_id=self.id,
                kind=kind,
                step_index=self._step,
                conversation_id="c",
                agent_name="clerk",
                idempotency_key=key,
                **more,
            )
        )


class Steps:
    """Runs in one step store."""

    async def _open_store(self, place: Place) -> StepStore:
        raise NotImplementedError

    async def open(self, place: Place, sessions: int) -> None:
        self._store = await self._open_store(place)
        self._runs = [Run(self._store, number) for number in range(sessions)]
        for run in self._runs:
            await run.register()

    async def reopen(self, place: Place) -> None:
        self._store = await self._open_store(place)

    async def step(self, session: int, first: str, second: str) -> None:
        await self._runs[session].step(first, second)

    async def load(self, session: int) -> int:
        found = await self._store.latest_snapshot(run_id=f"run-{session}")
        return len(found.messages) - 1 if found else 0

    async def close(self) -> None:
        """Theirs are not closed."""


class Holdfast(Steps):
    """Ours, on SQLite."""

    async def _open_store(self, place: Place) -> StepStore:
        self._opened = holdfast.open_store(f"sqlite:{place.directory}/steps.db")
        return HoldfastStepStore(await self._opened.__aenter__())

    async def close(self) -> None:
        await self._opened.__aexit__(None, None, None)


class Sqlite(Steps):
    """Theirs, on SQLite."""

    async def _open_store(self, place: Place) -> StepStore:
        return SqliteStepStore(database=place.directory / "steps.db")


class Files(Steps):
    """Theirs, in files."""

    async def _open_store(self, place: Place) -> StepStore:
        return FileStepStore(place.directory / "steps")

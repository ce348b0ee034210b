"""Histories, records and stores for the tests of the step store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
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
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
)

import holdfast
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.drivers.contract import Driver

Url = str | Driver
START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


@asynccontextmanager
async def opened(url: Url) -> AsyncIterator[HoldfastStepStore]:
    """A step store on a store of ours."""
    async with holdfast.open_store(url) as store:
        yield HoldfastStepStore(store)


def at(minute: int) -> datetime:
    """A moment."""
    return START + timedelta(minutes=minute)


def history(steps: int) -> list[ModelMessage]:
    """A question, and so many calls with their results."""
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(content="Go", timestamp=at(0))])]
    for step in range(steps):
        call = ToolCallPart(tool_name="look", args={"n": step}, tool_call_id=f"call_{step}")
        messages.append(
            ModelResponse(parts=[TextPart(content=f"step {step}"), call], model_name="m", timestamp=at(step))
        )
        returned = ToolReturnPart(
            tool_name="look", content=f"result {step}", tool_call_id=f"call_{step}", timestamp=at(step)
        )
        messages.append(ModelRequest(parts=[returned]))
    return messages


def run(run_id: str, **more: Any) -> RunRecord:
    """A run to register."""
    return RunRecord(run_id=run_id, **{"started_at": at(0), **more})


def event(run_id: str, kind: Any = "run_started", **more: Any) -> StepEvent:
    """Something that happened."""
    return StepEvent(run_id=run_id, kind=kind, **{"step_index": 1, "timestamp": at(1), **more})


def snapshot(run_id: str, messages: list[ModelMessage], **more: Any) -> ContinuableSnapshot:
    """A history to keep."""
    fields = {"step_index": len(messages), "timestamp": at(2), **more}
    return ContinuableSnapshot(run_id=run_id, messages=messages, **fields)


def effect(run_id: str, call: str = "call_0", status: Any = "started", **more: Any) -> ToolEffectRecord:
    """How a tool call stands."""
    fields = {"tool_name": "look", "started_at": at(3), **more}
    return ToolEffectRecord(run_id=run_id, tool_call_id=call, status=status, **fields)

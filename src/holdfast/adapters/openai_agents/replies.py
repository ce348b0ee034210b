"""Replies of models: as the journal holds them, and as the SDK is given them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import ModelResponse, Usage
from agents.usage import deserialize_usage, serialize_usage
from msgspec import Struct
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage

from ...core.budget import Usage as OurUsage
from ...core.entries import CallRef
from ...messages import OPENAI_AGENTS, ForeignMessage, Json, foreign
from ..foreign_calls import name_call
from .items import InputItem


class ReplyOnRecord(Struct, frozen=True):
    """A recorded reply: the entry that holds it, the ids of the calls in it, and what it says."""

    seq: int
    calls: tuple[str, ...]
    data: Json

    @property
    def items(self) -> list[InputItem]:
        """The items of the reply."""
        found: list[InputItem] = self.data["items"]
        return found

    @property
    def usage(self) -> Usage:
        """What the reply used."""
        return deserialize_usage(self.data["reply"]["usage"])

    def refer_to(self, call: str) -> CallRef:
        """What names one of its calls in the session."""
        return name_call(self.seq, self.calls, call)

    def as_response(self) -> ModelResponse:
        """The reply, for the SDK."""
        said = self.data["reply"]
        return ModelResponse(
            output=_as_output(self.items),
            usage=self.usage,
            response_id=said["response_id"],
            request_id=said["request_id"],
            raw_usage=said.get("raw_usage"),
        )

    def as_event(self) -> ResponseCompletedEvent:
        """The reply as the last event of a stream."""
        said = self.data["reply"]
        usage = self.usage
        response = Response.construct(
            id=said["response_id"],
            created_at=0.0,
            model=said["model"] or "",
            object="response",
            output=self.items,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            usage=_as_response_usage(usage) if usage.requests else None,
        )
        return ResponseCompletedEvent.construct(
            type="response.completed", response=response, sequence_number=0
        )


def _as_output(items: Sequence[InputItem]) -> list[Any]:
    """The items as objects of openai's. What they do not know stays as it is."""
    found: Any = Response.construct(_fields_set=None, output=list(items))
    output: list[Any] = found.output
    return output


def _as_response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens=usage.output_tokens,
        output_tokens_details=usage.output_tokens_details,
        total_tokens=usage.total_tokens,
    )


def dump_output(output: Sequence[Any]) -> list[InputItem]:
    """The items of a reply as plain data, with the fields that were set: others would change what the model
    is shown."""
    return [
        dict(item)
        if isinstance(item, dict)
        else item.model_dump(mode="json", exclude_unset=True, warnings=False)
        for item in output
    ]


def as_recorded(response: ModelResponse, *, agent: str | None, model: str | None) -> ForeignMessage:
    """A reply as the journal holds it."""
    said: Json = {
        "agent": agent,
        "model": model,
        "response_id": response.response_id,
        "request_id": response.request_id,
        "usage": serialize_usage(response.usage),
    }
    if response.raw_usage is not None:
        said["raw_usage"] = response.raw_usage
    return foreign({"items": dump_output(response.output), "reply": said}, OPENAI_AGENTS)


def response_of(terminal: Response, output: Sequence[Any]) -> ModelResponse:
    """What a stream amounted to. A terminal response may leave its items to the events before it."""
    usage = terminal.usage
    return ModelResponse(
        output=list(terminal.output or output),
        usage=Usage()
        if usage is None
        else Usage(
            requests=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens_details=usage.output_tokens_details,
        ),
        response_id=terminal.id,
        request_id=getattr(terminal, "_request_id", None),
    )


def usage_of(usage: Usage) -> OurUsage:
    """What a reply used, for the session's own count."""
    read = getattr(usage.input_tokens_details, "cached_tokens", None) or 0
    written = getattr(usage.input_tokens_details, "cache_write_tokens", None) or 0
    return OurUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
    ).without_negatives()


def list_calls(replies: Sequence[ModelResponse]) -> list[str]:
    """The ids of the calls in these replies."""
    items = [item for reply in replies for item in dump_output(reply.output)]
    return [str(item["call_id"]) for item in items if "call_id" in item]

"""What a run that was cut off had been told already: its requests, the replies to them, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolReturnPart,
)

from ...core.entries import CallRef
from ...core.transcript_items import Item
from ...formats.pydantic_ai import FORMAT, load
from ...messages import CallPart, ForeignMessage
from ..foreign_calls import name_call

Answer: TypeAlias = ToolReturnPart | RetryPromptPart  # pyright: ignore[reportDeprecated]


class RecordedReply(Struct, frozen=True):
    """A recorded reply: the entry that holds it, the ids of the calls in it, and what it says."""

    seq: int
    calls: tuple[str, ...]
    message: ModelResponse | None = None

    def refer_to(self, call: str) -> CallRef:
        """What names the call in its session."""
        return name_call(self.seq, self.calls, call)


NO_REPLY: Final = RecordedReply(0, ())
"""Stands for the reply before the first."""


class RecordedReplies:
    """The replies of a run so far, and before each what was said since the one before."""

    def __init__(self, items: Iterable[Item], since: int) -> None:
        self.replies: list[RecordedReply] = []
        self.before = NO_REPLY
        """The last reply of the history that the run began with."""
        self._said: list[list[ForeignMessage]] = [[]]
        for item in items:
            if item.format != FORMAT:
                continue
            if item.seq <= since:
                self.before = reply_of(item) if item.role == "assistant" else self.before
                continue
            message = item.read()
            assert isinstance(message, ForeignMessage)
            if item.role != "assistant":
                self._said[-1].append(message)
                continue
            response = load(message.data)
            assert isinstance(response, ModelResponse)
            self.replies.append(reply_of(item, response))
            self._said.append([])
        self._answers: dict[int, Mapping[str, Answer]] = {}

    def get_reply(self, number: int) -> RecordedReply:
        """The reply with this number, from 1; 0 is the last one of the history."""
        return self.before if number == 0 else self.replies[number - 1]

    def has_said(self, number: int) -> bool:
        """Whether what came after the reply with this number was recorded as a whole."""
        return number < len(self._said) and bool(self._said[number])

    def said_after(self, number: int) -> list[ModelMessage]:
        """What was said between the reply with this number and the next one."""
        return [load(message.data) for message in self._said[number]]

    def find_answer(self, number: int, call: str) -> Answer | None:
        """The recorded result of a call of the reply with this number."""
        if not self.has_said(number):
            return None
        if number not in self._answers:
            self._answers[number] = {
                part.tool_call_id: part
                for message in self.said_after(number)
                if isinstance(message, ModelRequest)
                for part in message.parts
                if isinstance(part, ToolReturnPart | RetryPromptPart)
            }
        return self._answers[number].get(call)


def reply_of(item: Item, message: ModelResponse | None = None) -> RecordedReply:
    """The reply that an item of the transcript holds."""
    calls = tuple(part.id for part in item.parts if isinstance(part, CallPart))
    return RecordedReply(item.seq, calls, message)


def adopt(message: ModelMessage, ctx: RunContext[object]) -> None:
    """Make a message of an earlier attempt at the same run one of this run's."""
    message.run_id, message.conversation_id = ctx.run_id, ctx.conversation_id

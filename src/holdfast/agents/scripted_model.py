"""A model that replies from a script: for tests, demos and work offline."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import anyio

from ..core.budget import Usage
from ..errors import BadInput, ModelError
from ..messages import Message, Text, ToolCall
from .model import ModelEvent, Prompt, Reply, TextDelta

Line: TypeAlias = "str | ToolCall | Message | Reply | Exception | Sequence[str | ToolCall]"
"""A reply: a text, a call, several of these, or a whole message. An exception is raised once, before the
next reply."""

Script: TypeAlias = "Iterable[Line] | Callable[[Prompt], Line]"
_CHARS_PER_TOKEN: Final = 4


class ScriptedModel:
    """Replies with its lines in order: the n-th reply of a session is the n-th line, in any process.

    Instead of a list, the script may be a function of the prompt. Tokens are estimated by length.
    """

    def __init__(self, script: Script, *, name: str = "scripted", delay_s: float = 0.0) -> None:
        self.name, self._delay_s = name, delay_s
        self._decide = script if callable(script) else None
        self._lines: list[tuple[list[Exception], Line]] = [] if callable(script) else _group(script)
        self._raised: dict[int, int] = {}

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield the next line."""
        if self._delay_s:
            await anyio.sleep(self._delay_s)
        line = self._next(prompt) if self._decide is None else self._decide(prompt)
        if isinstance(line, Exception):
            raise line
        reply = _as_reply(line, prompt)
        if prompt.stream:
            for piece in re.findall(r"\S+\s*|\s+", reply.message.text):
                yield TextDelta(piece)
        yield reply

    def _next(self, prompt: Prompt) -> Line:
        place = sum(message.role == "assistant" for message in prompt.messages)
        if place >= len(self._lines):
            raise ModelError(f"the script has {len(self._lines)} replies, and this is number {place + 1}")
        errors, line = self._lines[place]
        raised = self._raised.get(place, 0)
        if raised < len(errors):
            self._raised[place] = raised + 1
            return errors[raised]
        return line


def _group(script: Iterable[Line]) -> list[tuple[list[Exception], Line]]:
    """Each reply with the errors that come before it."""
    found: list[tuple[list[Exception], Line]] = []
    errors: list[Exception] = []
    for line in script:
        if isinstance(line, Exception):
            errors.append(line)
        else:
            found.append((errors, line))
            errors = []
    if errors:
        found.append((errors, errors[-1]))
    return found


def _as_reply(line: Line, prompt: Prompt) -> Reply:
    if isinstance(line, Reply):
        return line
    message = _as_message(line)
    asked = sum(_length(one) for one in prompt.messages) + len(prompt.instructions)
    said = _length(message)
    usage = Usage(input_tokens=asked // _CHARS_PER_TOKEN + 1, output_tokens=said // _CHARS_PER_TOKEN + 1)
    return Reply(message=message, usage=usage)


def _as_message(line: object) -> Message:
    if isinstance(line, Message):
        return line
    parts = line if isinstance(line, list | tuple) else (line,)
    return Message(role="assistant", blocks=tuple(_as_block(part) for part in parts))


def _as_block(part: object) -> Text | ToolCall:
    if isinstance(part, str):
        return Text(part)
    if isinstance(part, ToolCall):
        return part
    raise BadInput(f"a script consists of texts, calls, messages and errors, not of {part!r}")


def _length(message: object) -> int:
    blocks = message.blocks if isinstance(message, Message) else ()
    return sum(len(str(block)) for block in blocks)

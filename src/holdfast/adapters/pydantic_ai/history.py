"""pydantic-ai's messages in the journal, kept as they are, and back again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolReturn,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from ...formats.pydantic_ai import FORMAT, load
from ...messages import ForeignMessage, Json, foreign
from ...reprs import describe_error, describe_value
from ...session.inbox import message_entry
from ...session.session import Session
from ...tools.outcome import NoJsonForm, as_json, no_json_form, refuse_iterators

_check = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


def dump(message: ModelMessage, fallback: Callable[[Any], Json] = describe_value) -> Json:
    """The message as JSON-like data, every field of it; what has no JSON form is described, or what
    `fallback` says."""
    dumped = ModelMessagesTypeAdapter.dump_python([message], mode="json", fallback=fallback)
    return as_json(dumped[0])


def as_foreign(message: ModelMessage) -> ForeignMessage:
    """The message as the journal holds it."""
    outline = {
        "kind": message.kind,
        "parts": [
            {
                "part_kind": part.part_kind,
                "tool_call_id": getattr(part, "tool_call_id", None),
                "tool_name": getattr(part, "tool_name", None),
            }
            for part in message.parts
        ],
    }
    return replace(foreign(outline, FORMAT), data=msgspec.Raw(_write(message)))


def _write(message: ModelMessage) -> bytes:
    try:
        written = ModelMessagesTypeAdapter.dump_json([message])[1:-1]
        _check(written)
    except (ValueError, msgspec.DecodeError):
        # It holds what JSON cannot say, such as half a character in what a tool returned.
        return _encode(dump(message))
    return written


async def add(session: Session, messages: Iterable[ModelMessage]) -> None:
    """Add messages to the session, in one commit; what is large in them is a blob by then."""
    entries = [await message_entry(session._writer.engine, as_foreign(message)) for message in messages]
    if entries:
        session._writer.record_all(entries)


# -- telling messages apart ------------------------------------------------------------------------------


def essence(data: Json) -> str:
    """What a message says: the same for one that was dated, signed or priced since."""
    parts = [
        [part.get(key) for key in ("part_kind", "tool_name", "tool_call_id", "content", "args")]
        for part in data["parts"]
    ]
    return sha256(_encode([data["kind"], parts])).hexdigest()


def essences(messages: Iterable[ModelMessage]) -> list[str]:
    """What each message says."""
    return [essence(dump(message)) for message in messages]


def opening_of(prompt: str | Sequence[UserContent] | None, given: Sequence[str]) -> str:
    """What a run began with: two that began with the same are one run, the second of which goes on."""
    said = "" if prompt is None else essences([ModelRequest(parts=[UserPromptPart(content=prompt)])])[0]
    return sha256(_encode([said, given])).hexdigest()


# -- results ---------------------------------------------------------------------------------------------

_WRAPPED: Final = "pydantic_ai.tool_return"


def keep_result(value: Any) -> Json | NoJsonForm:
    """What a tool returned, as the ledger keeps it; in its place what is wrong with it, if it has no JSON
    form. Never raises: what the tool did is done, and must be recorded."""
    try:
        return _keep_any(value)
    except KeyboardInterrupt:
        raise
    except NoJsonForm as error:
        return error
    except BaseException as error:
        return NoJsonForm(describe_error(error))


def _keep_any(value: Any) -> Json:
    if value is None or value.__class__ in (str, int, bool):
        return value
    if isinstance(value, ToolReturn):
        return {
            _WRAPPED: {
                "return_value": _keep(value.return_value),
                "content": None if value.content is None else _keep_content(value.content),
                "metadata": as_json(value.metadata),
            }
        }
    return _keep(value)


def give_result(kept: Json) -> Any:
    """What `keep_result` kept; models and dataclasses come back as plain data."""
    if not isinstance(kept, dict | list):
        return kept
    if isinstance(kept, dict) and kept.keys() == {_WRAPPED}:
        inner = kept[_WRAPPED]
        said = None if inner["content"] is None else _give("user-prompt", inner["content"])
        return ToolReturn(
            return_value=_give("tool-return", inner["return_value"]),
            content=said,
            metadata=inner["metadata"],
        )
    return _give("tool-return", kept)


def _keep(value: Any) -> Json:
    refuse_iterators(value)
    return _dump_content(ToolReturnPart("", value, ""))


def _keep_content(content: str | Sequence[UserContent]) -> Json:
    return _dump_content(UserPromptPart(content))


def _dump_content(part: ToolReturnPart | UserPromptPart) -> Json:
    flaws: list[NoJsonForm] = []

    def note_flaw(value: Any) -> Json:
        flaws.append(no_json_form(value))
        return None

    kept = dump(ModelRequest(parts=[part]), note_flaw)["parts"][0]["content"]
    if flaws:
        raise flaws[0]
    return kept


def _give(kind: str, content: Json) -> Any:
    part = {"part_kind": kind, "content": content, "tool_name": "", "tool_call_id": ""}
    loaded = load({"kind": "request", "parts": [part]})
    return getattr(loaded.parts[0], "content")  # noqa: B009


def is_response(message: ModelMessage) -> bool:
    """Whether a model said it."""
    return isinstance(message, ModelResponse)

"""What the clients of providers return, as messages. No client is imported: their objects are known by their
attributes.

| object | known by | format |
| --- | --- | --- |
| openai's `ChatCompletion` | `choices` | `openai` |
| openai's `ChatCompletionMessage` | `role`, and no `type` | `openai` |
| openai's `Response` | `object` is `response` | `openai-responses` |
| anthropic's `Message` | `type` is `message`, with a `stop_reason` | `anthropic` |
| pydantic-ai's `ModelRequest`, `ModelResponse` | their class | `pydantic-ai` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from ..core.budget import Usage
from ..errors import BadInput
from ..messages import AnyMessage, ForeignMessage, Json, Message, Role, as_message, foreign


class SdkObject(Protocol):
    """An object of a provider's client: a pydantic model."""

    def model_dump(self) -> Any:
        """Its data."""


class GivenMessage(Struct, frozen=True, kw_only=True):
    """A message, and what its object says about the reply, if it is one."""

    message: AnyMessage
    usage: Usage | None = None
    model: str | None = None


def read_given(given: Any, format: str | None, *, role: Role = "user") -> GivenMessage:
    """What a caller gave as a message: ours, text, an object of a client, or data in a `format`."""
    if given.__class__ in _OWN:  # Almost always.
        return GivenMessage(message=as_message(given, format, role=role))
    if type(given).__module__.startswith("pydantic_ai."):
        found = _read_pydantic_ai(given)
        if found is not None:
            return found
    data = _dump(given)
    if isinstance(data, Mapping):
        whole = _read_whole(data)
        if whole is not None and format in (None, whole.message.format):
            return whole
        if format is None and data is not given and "role" in data and "type" not in data:
            format = "openai"
    return GivenMessage(message=as_message(given if format is None else data, format, role=role))


_OWN = frozenset({str, Message, ForeignMessage})


def _dump(given: Any) -> Json:
    """A pydantic model as the data that its server sent: fields that it did not send are left out."""
    dump = getattr(given, "model_dump", None)
    if dump is None or isinstance(given, type):
        return given
    return _without_parsed(dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))


def _without_parsed(data: Json) -> Json:
    """Without what openai's `parse` methods add, and its servers do not take."""
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if key not in ("parsed", "parsed_arguments")}
        return {key: _without_parsed(value) if key in _WITH_PARSED else value for key, value in kept.items()}
    return [_without_parsed(one) for one in data] if isinstance(data, list) else data


_WITH_PARSED = frozenset({"choices", "message", "tool_calls", "function", "output", "content"})


def _read_whole(data: Mapping[str, Json]) -> GivenMessage | None:
    """A whole reply, as data."""
    if isinstance(data.get("choices"), list):
        return _read_completion(data)
    if data.get("object") == "response" and isinstance(data.get("output"), list):
        kept = {name: data[name] for name in ("id", "output") if name in data}
        return _whole(foreign(kept, "openai-responses"), data, _usage_of_tokens)
    if data.get("type") == "message" and "stop_reason" in data:
        kept = {"role": data["role"], "content": data["content"]}
        return _whole(foreign(kept, "anthropic"), data, _usage_anthropic)
    return None


def _read_completion(data: Mapping[str, Json]) -> GivenMessage:
    choices = data["choices"]
    if len(choices) != 1 or "message" not in choices[0]:
        raise BadInput(
            f"a completion with {len(choices)} choices: give the message of the one that the conversation "
            "goes on with (completion.choices[0].message), and usage=…"
        )
    return _whole(foreign(choices[0]["message"], "openai"), data, _usage_chat)


def _whole(message: AnyMessage, data: Mapping[str, Json], read: Any) -> GivenMessage:
    given = data.get("usage")
    usage = read(given) if isinstance(given, Mapping) else None
    return GivenMessage(message=message, usage=usage, model=data.get("model"))


def _usage_chat(given: Mapping[str, Json]) -> Usage:
    details = given.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=given.get("prompt_tokens") or 0,
        output_tokens=given.get("completion_tokens") or 0,
        cache_read_tokens=details.get("cached_tokens") or 0,
        cache_write_tokens=details.get("cache_write_tokens") or 0,
    )


def _usage_of_tokens(given: Mapping[str, Json]) -> Usage:
    details = given.get("input_tokens_details") or {}
    return Usage(
        input_tokens=given.get("input_tokens") or 0,
        output_tokens=given.get("output_tokens") or 0,
        cache_read_tokens=details.get("cached_tokens") or 0,
        cache_write_tokens=details.get("cache_write_tokens") or 0,
    )


def _usage_anthropic(given: Mapping[str, Json]) -> Usage:
    """Anthropic counts the tokens of its cache apart; here they are among the input."""
    read = given.get("cache_read_input_tokens") or 0
    written = given.get("cache_creation_input_tokens") or 0
    return Usage(
        input_tokens=(given.get("input_tokens") or 0) + read + written,
        output_tokens=given.get("output_tokens") or 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _read_pydantic_ai(given: Any) -> GivenMessage | None:
    from .pydantic_ai import dump, usage_from  # Only here: it needs the library.

    if getattr(given, "kind", None) not in ("request", "response"):
        return None
    message = foreign(dump(given), "pydantic-ai")
    if given.kind == "request":
        return GivenMessage(message=message)
    return GivenMessage(message=message, usage=usage_from(given), model=given.model_name)

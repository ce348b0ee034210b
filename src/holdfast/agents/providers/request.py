"""A prompt as pydantic-ai asks it: our messages, and those of other formats, as its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from pydantic_ai.messages import InstructionPart, ModelMessage, SystemPromptPart, ToolReturnPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ...formats.own_blocks import to_own_message
from ...formats.pydantic_ai import conversation
from ...messages import AnyMessage, Json, Message
from ..model import Prompt


class ProviderRequest(NamedTuple):
    """The arguments of a request to a model of pydantic-ai."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


def build_request(prompt: Prompt, model: Model, settings: Mapping[str, Json]) -> ProviderRequest:
    """Make the request for a prompt to this model."""
    opening, rest = _split(prompt.messages)
    texts = [text for text in (prompt.instructions, *opening) if text]
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name, description=tool.description or None, parameters_json_schema=tool.schema
            )
            for tool in prompt.tools
        ],
        instruction_parts=[InstructionPart(content=text) for text in texts] or None,
    )
    messages = conversation(rest)
    if _needs_preparing(messages, model):
        messages = model.prepare_messages(messages, parameters)
    return ProviderRequest(messages, _settings(prompt, model, settings), parameters)


def _split(messages: Sequence[AnyMessage]) -> tuple[list[str], list[Message]]:
    """Split off the leading system messages, which are instructions."""
    ours = [to_own_message(message) for message in messages]
    first = next((index for index, message in enumerate(ours) if message.role != "system"), len(ours))
    return [message.text for message in ours[:first]], ours[first:]


def _needs_preparing(messages: Iterable[ModelMessage], model: Model) -> bool:
    """Whether there is something that not every provider accepts as it is.

    Messages are prepared only then: preparing also escapes pydantic-ai's own tags in the texts of tools and
    users, and so changes what a model reads in a file.
    """
    try:
        profile = model.profile
    except NotImplementedError:
        return False  # It combines several models, and prepares for each of them.
    if profile.get("tool_call_id_length") is not None:
        return True
    parts = (part for message in messages if message.kind == "request" for part in message.parts)
    return any(
        isinstance(part, SystemPromptPart) or (isinstance(part, ToolReturnPart) and part.files)
        for part in parts
    )


def _settings(prompt: Prompt, model: Model, settings: Mapping[str, Json]) -> ModelSettings:
    chosen: dict[str, Json] = dict(settings)
    if prompt.max_tokens is not None:
        chosen["max_tokens"] = prompt.max_tokens
    if "max_retries" not in model.unsupported_settings:
        # The loop retries, and records each attempt.
        chosen["max_retries"] = 0
    return cast(ModelSettings, chosen)

"""The contract between the loop and a model: prompts, and the events of a reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from ..core.budget import Usage
from ..messages import AnyMessage, Json, Message


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model is shown it; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Json]


class Prompt(Struct, frozen=True, kw_only=True):
    """What a model is asked. `max_tokens` caps the reply; `stream` asks for text deltas."""

    messages: Sequence[AnyMessage]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    max_tokens: int | None = None
    stream: bool = False


class TextDelta(Struct, frozen=True):
    """A piece of a reply's text, as it arrives. It is not stored; the whole reply is."""

    text: str


class Reply(Struct, frozen=True, kw_only=True):
    """A whole reply and its usage. `model` is the one that answered, if the provider says which."""

    message: Message
    usage: Usage = Usage()
    model: str | None = None


ModelEvent: TypeAlias = TextDelta | Reply


class Model(Protocol):
    """Anything that answers prompts."""

    @property
    def name(self) -> str:
        """The name, `provider:model` where there is a provider; published prices are found by it.

        A model with a true attribute `links` is sent links in the place of media that have one.
        """

    def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield text deltas if `prompt.stream`, then exactly one `Reply`.

        Send one request: the loop retries. Raise `ModelError`, which says whether a retry can help, and
        whether the provider may have charged for the lost reply. Closing the generator ends the request.
        """

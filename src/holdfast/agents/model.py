"""The contract between the loop and any model: what it is asked, and what it says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from ..core.budget import Usage
from ..messages import AnyMessage, Json, Message


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Json]


class Prompt(Struct, frozen=True, kw_only=True):
    """What a model is asked. `max_tokens` caps the reply; `stream`: somebody wants to see it grow."""

    messages: Sequence[AnyMessage]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    max_tokens: int | None = None
    stream: bool = False


class TextDelta(Struct, frozen=True):
    """A piece of a reply's text, as it came. Not in the journal: the whole reply will be."""

    text: str


class Reply(Struct, frozen=True, kw_only=True):
    """A whole reply, and what it took. `model` is the one that answered, where the provider says so."""

    message: Message
    usage: Usage = Usage()
    model: str | None = None


Said: TypeAlias = TextDelta | Reply


class Model(Protocol):
    """Whatever answers prompts."""

    @property
    def name(self) -> str:
        """How it is called, `provider:model` where there is a provider; prices are found by it. One with an
        attribute `links` that is true gets links in the place of media, where there are any."""

    def ask(self, prompt: Prompt) -> AsyncGenerator[Said, None]:
        """Deltas as they come, if `prompt.stream`, then exactly one `Reply`, last.

        Asks once: the loop tries again. `ModelError` says whether that can help, and whether the provider may
        have charged for what was lost. Closing the generator ends the request.
        """

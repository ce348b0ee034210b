"""A model of any provider, as the loop asks it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType

import anyio
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model

from ...errors import ModelError
from ...messages import Json
from ..model import Prompt, Reply, Said, TextDelta
from .error_translation import translated
from .reply import reply_from
from .request import Request, request_for


class ProviderModel:
    """A model behind a provider's API. Made by `open_model`.

    Each request has connections of its own, unless the model is entered: `async with model:` keeps them open
    until its end.
    """

    def __init__(
        self, name: str, find: Callable[[], Model], settings: Mapping[str, Json], *, links: bool = False
    ) -> None:
        self._name, self._find, self._settings = name, find, dict(settings)
        self.links = links
        """Whether it is sent links in the place of bytes, where there are any."""

    def __repr__(self) -> str:
        return f"<model {self._name}>"

    @property
    def name(self) -> str:
        """How it is called: `provider:model`."""
        return self._name

    async def ask(self, prompt: Prompt) -> AsyncGenerator[Said, None]:
        """Deltas as they come, if `prompt.stream`, then exactly one `Reply`, last."""
        model = self._find()
        request = request_for(prompt, model, self._settings)
        with translated(self._name):
            async with _open(model):
                if prompt.stream:
                    async with aclosing(_stream(model, request)) as coming:
                        async for said in coming:
                            if isinstance(said, ModelResponse):
                                response = said
                            else:
                                yield said
                else:
                    response = await model.request(request.messages, request.settings, request.parameters)
        yield self._reply(response, model, streamed=prompt.stream)

    def _reply(self, response: ModelResponse, model: Model, *, streamed: bool) -> Reply:
        if response.state == "suspended":
            raise ModelError(f"{self._name} paused in the middle of its reply", charged=True)
        if not _is_whole(response, model, streamed=streamed):
            raise ModelError(f"{self._name}: the reply broke off", retryable=True, charged=True)
        return reply_from(response)

    async def __aenter__(self) -> ProviderModel:
        await self._find().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _leave(self._find())


@asynccontextmanager
async def _open(model: Model) -> AsyncIterator[None]:
    await model.__aenter__()
    try:
        yield
    finally:
        await _leave(model)


async def _leave(model: Model) -> None:
    # Cut short by a cancellation, it would leave the connections open and count as entered forever.
    with anyio.CancelScope(shield=True):
        await model.__aexit__(None, None, None)


async def _stream(model: Model, request: Request) -> AsyncGenerator[TextDelta | ModelResponse, None]:
    async with model.request_stream(request.messages, request.settings, request.parameters) as stream:
        async for event in stream:
            if text := _text_in(event):
                yield TextDelta(text)
        yield stream.get()


def _text_in(event: ModelResponseStreamEvent) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _is_whole(response: ModelResponse, model: Model, *, streamed: bool) -> bool:
    """Whether it came to its end, for a server that dies may end a stream politely, without saying why."""
    if response.state != "complete":
        return False
    if model.provider is None or "finish_reason" in (response.provider_details or {}):
        return True  # What is no server, like the models that pydantic-ai has for tests, never says why.
    if streamed and any(kind.__name__ == "OpenAIChatModel" for kind in type(model).__mro__):
        return response.finish_reason not in ("stop", "tool_call")  # It guesses these where it was told none.
    return response.finish_reason is not None

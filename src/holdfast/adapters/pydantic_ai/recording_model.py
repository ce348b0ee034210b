"""The model that a durable run asks: it tells when, and may be sent links in the place of bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from .media_urls import Links


def wrap_model(model: Model, begin: Callable[[], Awaitable[None]], links: Links | None) -> Told:
    """The model as a `Told`. One that cannot stream stays recognisable as such: pydantic-ai says so, by its
    name, before it is asked."""
    if type(model).request_stream is not Model.request_stream:
        return Told(model, begin, links)
    made = type(type(model).__name__, (Told,), {"request_stream": Model.request_stream})
    told = made(model, begin, links)
    assert isinstance(told, Told)
    return told


class Told(WrapperModel):
    """The model, which is entered once everything that is sent to it is known; what is sent may be links."""

    def __init__(self, wrapped: Model, begin: Callable[[], Awaitable[None]], links: Links | None) -> None:
        super().__init__(wrapped)
        self._begin, self._links = begin, links

    async def __aenter__(self) -> Told:
        await self._begin()
        await super().__aenter__()
        return self

    async def _show(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """What the model sees of the messages, which were recorded as they are."""
        return messages if self._links is None else await self._links.put_in(messages)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await super().request(await self._show(messages), model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        shown = await self._show(messages)
        async with super().request_stream(
            shown, model_settings, model_request_parameters, run_context
        ) as stream:
            yield stream

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        shown = await self._show(messages)
        return await super().count_tokens(shown, model_settings, model_request_parameters)

"""A model of any provider, as the loop asks it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final

import anyio
import httpx2
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from ...errors import BadInput, MissingExtra, ModelError
from ...messages import Json
from ...system import threads
from ..model import ModelEvent, Prompt, Reply, TextDelta
from .reply import reply_from
from .request import ProviderRequest, build_request

COMPATIBLE: Final = "openai-compatible"
"""What stands for the provider in the name of a model on an OpenAI-compatible server."""

_IN_THE_EXTRA: Final = ("anthropic", "openai", "google")

_WHY_CHARS_MAX: Final = 500

# Timed out, in conflict with another request, too early, too many; and everything from 500 on.
_RETRYABLE: Final = frozenset({408, 409, 425, 429})
_SERVER_FAILED: Final = 500


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

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, if `prompt.stream`, then exactly one `Reply`, last."""
        model = self._find()
        request = build_request(prompt, model, self._settings)
        with translate_errors(self._name):
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


async def _stream(model: Model, request: ProviderRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
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


# -- from a name to a model of pydantic-ai -------------------------------------------------------------


def as_given(model: Model) -> Callable[[], Model]:
    """The same model for everybody."""
    return lambda: model


def by_name(name: str, *, base_url: str | None, api_key: str | None) -> Callable[[], Model]:
    """Gives each thread a model of its own, whose connections belong to the event loop of that thread.

    The first is made here, so that whatever is wrong with the name or the key is known at once.
    """
    mine = threads.local()

    def find() -> Model:
        model: Model | None = getattr(mine, "model", None)
        if model is None:
            model = mine.model = _make(name, base_url, api_key)
        return model

    find()
    return find


def _make(name: str, base_url: str | None, api_key: str | None) -> Model:
    try:
        if base_url is not None:
            return _compatible(name, base_url, api_key)
        return infer_model(name, infer_provider if api_key is None else _keyed(api_key))
    except ImportError as error:
        if name.startswith(_IN_THE_EXTRA):
            raise MissingExtra(f"the model {name!r}", "models") from error
        raise BadInput(f"the model {name!r} needs a further package: {error}") from error
    except (UserError, ValueError) as error:
        # What follows is advice about pydantic-ai's own `Agent`.
        why = str(error).partition(" To try Pydantic AI")[0]
        hint = "" if ":" in name else "; a name is like 'anthropic:claude-sonnet-5'"
        raise BadInput(f"cannot open the model {name!r}: {why}{hint}") from error


def _compatible(name: str, base_url: str, api_key: str | None) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Compatible(OpenAIProvider):
        @property
        def name(self) -> str:
            return COMPATIBLE

    # Without a key of its own, the server is not sent the one that the environment has for OpenAI.
    return OpenAIChatModel(name, provider=Compatible(base_url=base_url, api_key=api_key or "none"))


def _keyed(api_key: str) -> Callable[[str], Provider[Any]]:
    def make(provider: str) -> Provider[Any]:
        kind: Callable[..., Provider[Any]] = infer_provider_class(provider)
        try:
            return kind(api_key=api_key)
        except TypeError as error:
            raise BadInput(f"the provider {provider!r} takes no api_key") from error

    return make


# -- failures ------------------------------------------------------------------------------------------


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Whatever the provider, its library or the network raises within leaves as a `ModelError`."""
    try:
        yield
    except (ModelAPIError, UnexpectedModelBehavior, UserError, FallbackExceptionGroup) as error:
        raise model_error(name, error) from error
    except (httpx2.HTTPError, OSError) as error:
        raise _failure(name, error, retryable=True, charged=True) from error


def model_error(name: str, error: Exception) -> ModelError:
    """What an exception of pydantic-ai means for the loop."""
    if isinstance(error, FallbackExceptionGroup):
        return _of_several(name, [model_error(name, one) for one in error.exceptions])
    if isinstance(error, ModelHTTPError):
        return _failure(
            name,
            error,
            retryable=_is_retryable(error),
            retry_after_s=error.retry_after,
            charged=error.in_stream,
            status=error.status_code,
        )
    if isinstance(error, ModelConnectionError):
        unsent = error.phase in ("pool", "connect")
        return _failure(name, error, retryable=True, charged=not unsent)
    if isinstance(error, ModelRequestRejectedError | ModelQuotaExceededError):
        return _failure(name, error, retryable=False, charged=error.in_stream)
    if isinstance(error, ContentFilterError):
        return _failure(name, error, retryable=False, charged=True)
    if isinstance(error, ModelAPIError | UnexpectedModelBehavior):
        # An answer, but none that makes sense, or none in time.
        return _failure(name, error, retryable=True, charged=True)
    return _failure(name, error, retryable=False, charged=False)


def _is_retryable(error: ModelHTTPError) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return False
    if error.provider_retry_hint is not None:
        return error.provider_retry_hint
    if isinstance(error, ModelRequestRejectedError):
        return False
    return error.status_code in _RETRYABLE or error.status_code >= _SERVER_FAILED


def _of_several(name: str, errors: list[ModelError]) -> ModelError:
    waits = [error.retry_after_s for error in errors if error.retryable]
    return ModelError(
        f"{name}: " + "; ".join(map(str, errors)),
        retryable=any(error.retryable for error in errors),
        # Whichever is ready first will do.
        retry_after_s=None
        if None in waits
        else min((wait for wait in waits if wait is not None), default=None),
        charged=any(error.charged for error in errors),
        status=errors[-1].status if errors else None,
    )


def _failure(
    name: str,
    error: Exception,
    *,
    retryable: bool,
    charged: bool,
    retry_after_s: float | None = None,
    status: int | None = None,
) -> ModelError:
    where = name if status is None else f"{name} (HTTP {status})"
    return ModelError(
        f"{where}: {_why(error)[:_WHY_CHARS_MAX]}",
        retryable=retryable,
        retry_after_s=retry_after_s,
        charged=charged,
        status=status,
    )


def _why(error: Exception) -> str:
    """The provider's own words, without what pydantic-ai puts around them."""
    body = getattr(error, "body", None)
    for _ in range(2):
        if isinstance(body, dict) and isinstance(body.get("message"), str):
            return str(body["message"])
        body = body.get("error") if isinstance(body, dict) else body
    if isinstance(body, str) and body:
        return body
    return str(error) or type(error).__name__

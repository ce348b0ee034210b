"""Transports for httpx, sync and async. They work with httpx2 as well, and import neither."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import BadInput
from ..reprs import qualified_name_of
from ..system import threads
from .tracked_request import KEY_HEADER, TrackedRequest

if TYPE_CHECKING:
    import httpx
    from httpx import AsyncBaseTransport as _AsyncBase
    from httpx import BaseTransport as _Base
else:
    # A client only calls the methods. So neither library is needed before it is there, with its requests.
    _Base = _AsyncBase = object

SelfT = TypeVar("SelfT", bound="Transport")
AsyncSelfT = TypeVar("AsyncSelfT", bound="AsyncTransport")

_LIBRARIES: Final = ("httpx", "httpx2")
_UNSENT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol")
"""The errors that end a request before there is a connection to send it over."""


class Transport(_Base):
    """Sends the requests of tools with keys, and notes them: `httpx.Client(transport=Transport())`.

    `inner` does the sending; by default `HTTPTransport()`. Options of the connection are given to it:
    `Transport(httpx.HTTPTransport(retries=2, http2=True))`. `header` is the header for the key.

    `unsent_is_not_done`: a body that ends with the error of a connection that could not be made, and has sent
    no unsafe request, has done nothing. By default this holds if `inner` is one of httpx's own transports,
    because another one may have sent the request before, and repeated it. Pass False if your tools change
    something by other means before they make requests.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        header: str = KEY_HEADER,
        unsent_is_not_done: bool | None = None,
    ) -> None:
        self._inner, self._header, self._unsent_is_not_done = inner, header, unsent_is_not_done
        self._lock = threads.Lock()

    def __enter__(self: SelfT) -> SelfT:
        if self._inner is not None:
            self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(exc_type, exc_value, traceback)

    def close(self) -> None:
        """Close the inner transport."""
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request through the inner transport. Called by the client."""
        library = _library_of(request)
        with self._lock:  # A client may be shared by threads.
            if self._inner is None:
                self._inner = library.HTTPTransport()
            inner: httpx.BaseTransport = self._inner
        tracked = _track(library, request, self._header)
        if tracked is None:
            return inner.handle_request(request)
        is_unsent = _judge(library, inner, self._unsent_is_not_done)
        excuses = self._unsent_is_not_done is not False
        tracked.begin(excuses=excuses)
        with tracked.sending(is_unsent, excuses=excuses):
            response = inner.handle_request(request)
        tracked.answer(response.status_code)
        return response


class AsyncTransport(_AsyncBase):
    """The same for an async client: `httpx.AsyncClient(transport=AsyncTransport())`."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        header: str = KEY_HEADER,
        unsent_is_not_done: bool | None = None,
    ) -> None:
        self._inner, self._header, self._unsent_is_not_done = inner, header, unsent_is_not_done

    async def __aenter__(self: AsyncSelfT) -> AsyncSelfT:
        if self._inner is not None:
            await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._inner is not None:
            await self._inner.__aexit__(exc_type, exc_value, traceback)

    async def aclose(self) -> None:
        """Close the inner transport."""
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request through the inner transport. Called by the client."""
        library = _library_of(request)
        if self._inner is None:
            self._inner = library.AsyncHTTPTransport()
        inner: httpx.AsyncBaseTransport = self._inner
        tracked = _track(library, request, self._header)
        if tracked is None:
            return await inner.handle_async_request(request)
        is_unsent = _judge(library, inner, self._unsent_is_not_done)
        excuses = self._unsent_is_not_done is not False
        await tracked.begin_async(excuses=excuses)
        with tracked.sending(is_unsent, excuses=excuses):
            response = await inner.handle_async_request(request)
        tracked.answer(response.status_code)
        return response


def _library_of(request: object) -> Any:
    """The library that made the request."""
    for kind in type(request).__mro__:
        root = qualified_name_of(kind)[0].partition(".")[0]
        if root in _LIBRARIES:
            return import_module(root)
    raise BadInput(f"{type(request).__name__} is no request of {' or '.join(_LIBRARIES)}")


def _track(library: Any, request: httpx.Request, header: str) -> TrackedRequest | None:
    def read() -> bytes | None:
        try:
            return request.content
        except library.RequestNotRead:
            return None

    return TrackedRequest.find(request, request.method, str(request.url), request.headers, header, read)


def _judge(library: Any, inner: object, unsent_is_not_done: bool | None) -> Callable[[Exception], bool]:
    """What says of an error of the inner transport whether the request was surely not sent."""
    own = qualified_name_of(type(inner))[0].partition(".")[0] == library.__name__
    if not own and not unsent_is_not_done:
        return lambda _: False
    kinds: tuple[type[Exception], ...] = tuple(getattr(library, name) for name in _UNSENT)
    return lambda error: isinstance(error, kinds)

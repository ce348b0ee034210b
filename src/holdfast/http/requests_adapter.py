"""An adapter for requests."""

from __future__ import annotations

from typing import Any

from ..errors import MissingExtra
from .tracked_request import KEY_HEADER, TrackedRequest

try:
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import ConnectTimeoutError, MaxRetryError
    from urllib3.util.retry import Retry
except ImportError as missing:
    raise MissingExtra("holdfast.http.Adapter", "", package="requests") from missing


class Adapter(HTTPAdapter):
    """Sends the requests of tools with keys, and notes them: `session.mount("https://", Adapter())`.

    Takes the options of `requests.adapters.HTTPAdapter`. `header` is the header for the key.

    `unsent_is_not_done`: a body that ends with the error of a connection that could not be made, and has sent
    no unsafe request, has done nothing. Pass False if your tools change something by other means before they
    make requests. It does not hold where `max_retries` allows urllib3 to repeat a request of this method
    that was sent.
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "_header", "_unsent_is_not_done"]

    def __init__(
        self, *args: Any, header: str = KEY_HEADER, unsent_is_not_done: bool = True, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._header, self._unsent_is_not_done = header, unsent_is_not_done

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """Send a request. Called by the session."""
        method, url = request.method or "", request.url or ""
        tracked = TrackedRequest.find(
            request, method, url, request.headers, self._header, lambda: _content_of(request)
        )
        if tracked is None:
            return super().send(request, *args, **options)
        may_repeat = _may_repeat(self.max_retries, method)
        excuses = self._unsent_is_not_done
        tracked.begin(excuses=excuses)
        with tracked.sending(lambda error: not may_repeat and _is_unsent(error), excuses=excuses):
            response = super().send(request, *args, **options)
        tracked.answer(response.status_code)
        return response


def _content_of(request: PreparedRequest) -> bytes | None:
    """What the request sends; None if it is a stream."""
    body = request.body
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes) else (b"" if body is None else None)


def _may_repeat(retries: Retry, method: str) -> bool:
    """Whether urllib3 may send a request of this method again after it was sent: the last error then says
    nothing of the first one."""
    if retries.total is not None and not retries.total:
        return False
    return not retries.allowed_methods or method.upper() in retries.allowed_methods


def _is_unsent(error: Exception) -> bool:
    """Whether there was no connection to send it over: it was refused, not made in time, or the name of the
    host was not found."""
    cause = error.args[0] if error.args else None
    reason = cause.reason if isinstance(cause, MaxRetryError) else cause
    # With retries switched off, urllib3's error comes as it is.
    return isinstance(reason, ConnectTimeoutError) or isinstance(error, ConnectTimeoutError)

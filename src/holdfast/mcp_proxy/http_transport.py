"""A transport for httpx2 that tells of each request whether it surely did not reach the server.

The `mcp` package ends a whole connection, with every call on it, where one request fails. Here, a request
that fails is answered in the server's place, with a JSON-RPC error of our own.
"""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2

from ..reprs import describe_error
from .delivery import Delivery, mark_delivery
from .json_rpc import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR

_UNSENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
)
"""The errors that end a request before there is a connection to send it over."""

_REFUSED: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 421, 426, 429, 431})
"""With these, a server says that it has not taken up a request."""


class TellingTransport(httpx2.AsyncBaseTransport):
    """Sends requests over httpx2's own transport, and answers those that fail."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Called by the client."""
        if request.method != "POST":
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
        except _UNSENT as error:
            return _answer(request, 503, "unsent", describe_error(error))
        except httpx2.TransportError as error:
            return _answer(request, 503, "lost", describe_error(error))
        if response.status_code < 400:
            return response
        try:
            body = await response.aread()
        except httpx2.TransportError:
            body = b""
        finally:
            await response.aclose()
        status, headers, said = response.status_code, _plain_headers(response), _read_error(body)
        # A session that the server has forgotten, or a request that it does not take for one. Without the
        # HTTP status, the codes of these errors would leave open whether a tool has run.
        is_dropped = said is not None and said.get("code") in (PARSE_ERROR, INVALID_REQUEST)
        is_forgotten = status == 404 and "mcp-session-id" in request.headers
        if said is not None and not (status in _REFUSED and (is_dropped or is_forgotten)):
            return httpx2.Response(status, headers=headers, content=body, request=request)
        text = f"HTTP {status} {response.reason_phrase}" + (f": {said.get('message')}" if said else "")
        delivery: Delivery = "refused" if status in _REFUSED else "lost"
        return _answer(request, status, delivery, text, headers)


def _plain_headers(response: httpx2.Response) -> dict[str, str]:
    """Those that do not describe the bytes of a body that was read."""
    gone = ("content-length", "content-encoding", "transfer-encoding")
    return {key: value for key, value in response.headers.items() if key.lower() not in gone}


def _read_error(body: bytes) -> dict[str, Any] | None:
    """The JSON-RPC error in a body, if it is one."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    said = found.get("error") if isinstance(found, dict) and "jsonrpc" in found else None
    return said if isinstance(said, dict) else None


def _answer(
    request: httpx2.Request, status: int, delivery: Delivery, text: str, headers: dict[str, str] | None = None
) -> httpx2.Response:
    try:
        asked: Any = json.loads(request.content)
        id = asked.get("id")
    except (httpx2.RequestNotRead, ValueError, AttributeError):
        id = None
    error = {"code": CONNECTION_CLOSED, "message": text, "data": mark_delivery(delivery, status)}
    body = json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode()
    return httpx2.Response(
        status, headers={**(headers or {}), "content-type": "application/json"}, content=body, request=request
    )

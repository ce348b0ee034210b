"""Services on this machine that tools speak to over HTTP, and a tool for each library that can speak."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from types import TracebackType
from typing import Any, Literal, NamedTuple

import httpx
import requests

from holdfast import tool
from holdfast.http import Adapter, AsyncTransport, Transport

KINDS = ("httpx", "httpx2", "httpx-async", "requests")
"""The ways to send a request."""

TIMEOUT_S = 120
"""Reached only by what hangs."""

Step = tuple[str, str]
"""The method and URL of a request."""


class Received(NamedTuple):
    """A request, as the service sees it."""

    method: str
    path: str
    key: str | None


class Service:
    """A service that does something at each unsafe request. A safe one says which keys are known.

    `deduplicates`: a request with a key that was seen before gets the answer of that time, and nothing is
    done. `answers` says, for each unsafe request in order, how it is answered once it is done; the last one
    holds on.
    """

    def __init__(self, *answers: Literal["drop"] | int, deduplicates: bool = False) -> None:
        self._answers = answers or (200,)
        self._deduplicates = deduplicates
        self.received: list[Received] = []
        self.bodies: list[bytes] = []
        """What came with each of them."""
        self.done: list[str] = []
        """The paths of the requests that had an effect."""
        self.on_done: Callable[[], None] = lambda: None
        """Called by the service before it answers."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def url(self, path: str = "/pay") -> str:
        """The address of something at this service."""
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    @property
    def keys(self) -> list[str | None]:
        """The keys of the unsafe requests, in order."""
        return [one.key for one in self.received if one.method != "GET"]

    def take(self, method: str, path: str, key: str | None) -> Literal["drop"] | int:
        """Do what is asked; how to answer."""
        with self._lock:
            is_known = key is not None and key in self.keys
            self.received.append(Received(method, path, key))
            if method == "GET":
                return 200 if path.partition("?")[2] in self.keys else 404
            if not (self._deduplicates and is_known):
                self.done.append(path)
            answer = self._answers[min(len(self.keys), len(self._answers)) - 1]
        self.on_done()
        return answer

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def take(self) -> None:
            service.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            answer = service.take(self.command, self.path, self.headers.get("Idempotency-Key"))
            if answer == "drop":
                return
            self.send_response(answer)
            if 300 <= answer < 400:
                self.send_header("Location", service.url("/moved"))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = do_DELETE = take  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def refusing_url(path: str = "/pay") -> Iterator[str]:
    """An address where connections are refused, as long as the block lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Not listening.
        yield f"http://127.0.0.1:{taken.getsockname()[1]}{path}"


def make_client(kind: str, **options: Any) -> Any:
    """A client of a library, with the transport for tools."""
    if kind == "httpx-async":
        return httpx.AsyncClient(transport=AsyncTransport(**options), timeout=TIMEOUT_S)
    if kind in ("httpx", "httpx2"):
        return import_module(kind).Client(transport=Transport(**options), timeout=TIMEOUT_S)
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", Adapter(**options))
    return session


def make_body(kind: str, *steps: Step, headers: dict[str, str] | None = None, **options: Any) -> Any:
    """A function that makes these requests, one after another, and returns the statuses."""
    if kind == "httpx-async":

        async def act_async() -> list[int]:
            async with make_client(kind, **options) as client:
                return [
                    (await client.request(method, url, headers=headers)).status_code for method, url in steps
                ]

        return act_async

    def act() -> list[int]:
        with make_client(kind, **options) as client:
            return [client.request(method, url, headers=headers).status_code for method, url in steps]

    return act


def make_tool(kind: str, *steps: Step, transport: Any = None, **declaration: Any) -> Any:
    """A tool `act` that makes these requests; mutating, unless declared otherwise."""
    declare = tool(name="act", **{"side_effects": {"mutate"}, **declaration})
    return declare(make_body(kind, *steps, **(transport or {})))


def requests_of(notes: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The requests that are noted with a call, without their times."""
    return [
        {key: value for key, value in one.items() if key not in ("at", "ended_at")}
        for one in notes.get("requests", [])
    ]

"""A JSON service on this machine, with a list of orders."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from holdfast import recipes


class Asked(NamedTuple):
    """A GET request, as the service sees it."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """What it answers."""

    body: Any
    """JSON data, or bytes as they are."""
    status: int = 200
    headers: Mapping[str, str] = {}


class OrderService:
    """POST adds an order, GET lists those that match the query, or gives the one whose key is in the path.

    `on_get` takes the place of that: what it returns is the answer, or the connection is closed at None.
    """

    def __init__(self, on_get: Callable[[Asked], Answer | None] | None = None) -> None:
        self.on_get = on_get or self.find
        self.orders: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def find(self, asked: Asked) -> Answer:
        """The orders that match, or the one of the path."""
        name = asked.path.removeprefix("/orders").strip("/")
        with self._lock:
            if name:
                found = [one for one in self.orders if name in (one.get("reference"), one["key"])]
                return Answer(found[0]) if found else Answer({"error": "not found"}, 404)
            return Answer(
                [one for one in self.orders if all(str(one.get(k)) == v for k, v in asked.query.items())]
            )

    def add(self, order: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """Take an order."""
        with self._lock:
            self.orders.append({**order, "id": len(self.orders) + 1, "key": key})
            return self.orders[-1]

    def __enter__(self) -> OrderService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(service: OrderService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = Asked(parts.path, dict(parse_qsl(parts.query)), dict(self.headers))
            service.asked.append(asked)
            self.answer(service.on_get(asked))

        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(Answer(service.add(order, self.headers.get("Idempotency-Key")), 201))

        def answer(self, answer: Answer | None) -> None:
            if answer is None:
                return
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            headers = {"Content-Type": "application/json", **answer.headers, "Content-Length": str(len(body))}
            self.send_response(answer.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


def find_order(service: OrderService) -> Any:
    """The recipe that finds an order which has the key of the effect as its reference."""
    return recipes.find(
        service.url + "/orders",
        where={"reference": "{ctx.key}", "what": "{what}"},
        result="order {found[id]}",
    )

"""Hosted models without the hosts: a server on this machine that speaks their wire formats.

It answers `anthropic:…`, `openai:…`, `openai-chat:…` and models of OpenAI-compatible servers, plain and
streamed, according to a script; without one it answers sensibly. Whatever names a hosted model runs against
it with the environment of `Wire.environment`:

    with serve() as wire:
        subprocess.run([sys.executable, "example.py"], env={**os.environ, **wire.environment}, check=True)
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from tests.agent.provider_formats import DIALECTS, Answer, Call, Dialect, Offered


@dataclass(frozen=True)
class Failure:
    """An error with a status, in the provider's words."""

    status: int
    message: str = "something is wrong"
    kind: str = "api_error"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """A connection that ends too soon: before the reply, in its middle, or there but with a polite end."""

    where: Literal["before", "middle", "politely"] = "middle"
    answer: Answer = field(default_factory=lambda: Answer(text="It was the best of times"))


@dataclass(frozen=True)
class FailedStream:
    """A stream that begins well and then tells of an error."""

    message: str = "Overloaded"
    kind: str = "overloaded_error"


@dataclass(frozen=True)
class Stall:
    """The beginning of a stream, and then nothing until the client hangs up."""


Turn = Answer | Failure | Cut | FailedStream | Stall


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    port: int
    """Of the client: the same for all requests over one connection."""

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.path]

    @property
    def tools(self) -> list[Offered]:
        return self.dialect.tools(self.body)

    @property
    def ends_with_results(self) -> bool:
        return self.dialect.ends_with_results(self.body)


Script = Callable[[Asked], Turn]


def sensible(asked: Asked) -> Answer:
    """Calls the first tool that is offered, once, with arguments that fit; then says that it is done."""
    if asked.tools and not asked.ends_with_results:
        tool = asked.tools[0]
        return Answer(calls=[Call(name=tool.name, args=example(tool.schema, tool.schema))])
    return Answer(text="Done.")


def example(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """A value that fits an ordinary JSON Schema; only what is required of an object."""
    if reference := schema.get("$ref"):
        return example(root["$defs"][reference.rpartition("/")[2]], root)
    for chosen in ("const", "default"):
        if chosen in schema:
            return schema[chosen]
    for several in ("enum", "examples"):
        if schema.get(several):
            return schema[several][0]
    for union in ("anyOf", "oneOf", "allOf"):
        if schema.get(union):
            return example(schema[union][0], root)
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: example(properties.get(name, {}), root) for name in schema.get("required", ())}
    lowest = max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    plain = {"string": "example", "integer": lowest, "number": lowest, "boolean": True, "array": []}
    return plain.get(kind)


class Wire:
    """The running server: where it is, what it will say, and what it was asked."""

    def __init__(self, script: Script) -> None:
        self.asked: list[Asked] = []
        self.stalling, self.hung_up = threading.Event(), threading.Event()
        """Events: a client waits in the middle of a `Stall`; a client left there."""
        self._script = script
        self._turns: deque[Turn] = deque()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.wire = self

    @property
    def url(self) -> str:
        """What the paths of the APIs are appended to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead the clients of hosted providers here."""
        return {
            "ANTHROPIC_API_KEY": "sk-ant-none",
            "ANTHROPIC_BASE_URL": self.url,
            "OPENAI_API_KEY": "sk-none",
            "OPENAI_BASE_URL": f"{self.url}/v1",
        }

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the requests that came."""
        return [asked.body for asked in self.asked]

    def say(self, *turns: Turn | str) -> None:
        """Answer the next requests with these; the script speaks again after them."""
        self._turns.extend(Answer(text=turn) if isinstance(turn, str) else turn for turn in turns)

    def next_turn(self, asked: Asked) -> Turn:
        """What to say to a request."""
        self.asked.append(asked)
        return self._turns.popleft() if self._turns else self._script(asked)

    @contextmanager
    def running(self) -> Iterator["Wire"]:
        """In a thread of its own, until the end of the block."""
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@contextmanager
def serve(script: Script = sensible) -> Iterator[Wire]:
    """A server for the length of the block."""
    with Wire(script).running() as wire:
        yield wire


class _Server(ThreadingHTTPServer):
    wire: Wire
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = urlsplit(self.path).path
        if path not in DIALECTS:
            self._send(404, {"error": {"message": f"nothing is served at {path}"}})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(path, headers, body, self.client_address[1])
        turn = cast(_Server, self.server).wire.next_turn(asked)
        if isinstance(turn, Failure):
            self._send(turn.status, asked.dialect.error(turn.kind, turn.message), turn.headers)
        elif isinstance(turn, Cut) and turn.where == "before":
            self._hang_up()
        elif body.get("stream"):
            self._stream(asked, turn)
        else:
            self._reply(asked, turn)

    def _reply(self, asked: Asked, turn: Turn) -> None:
        if isinstance(turn, FailedStream):
            self._send(529, asked.dialect.error(turn.kind, turn.message))
            return
        self._send(200, asked.dialect.plain(_answer_in(turn), asked.body["model"]), cut=isinstance(turn, Cut))

    def _send(
        self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self._hang_up()

    def _stream(self, asked: Asked, turn: Turn) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        dialect = asked.dialect
        events = [_sse(name, data) for name, data in dialect.events(_answer_in(turn), asked.body["model"])]
        if isinstance(turn, Answer):
            self._chunks([*events, "data: [DONE]\n\n"] if asked.path.endswith("completions") else events)
            self._end()
            return
        self._chunks(events[: len(events) // 2])
        if isinstance(turn, Stall):
            self._wait_for_the_end()
        elif isinstance(turn, Cut) and turn.where == "middle":
            self._hang_up()
        else:
            if isinstance(turn, FailedStream):
                self._chunks([_sse("error", dialect.error(turn.kind, turn.message))])
            self._end()

    def _chunks(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _wait_for_the_end(self) -> None:
        wire = cast(_Server, self.server).wire
        wire.stalling.set()
        with suppress(ConnectionResetError):  # A client that leaves with unread data resets the connection.
            self.rfile.read(1)
        wire.hung_up.set()
        self.close_connection = True


def _answer_in(turn: Turn) -> Answer:
    if isinstance(turn, Answer):
        return turn
    return turn.answer if isinstance(turn, Cut) else Cut().answer


def _sse(name: str | None, data: dict[str, Any]) -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"

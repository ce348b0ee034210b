"""The plain server behind an address on this machine. It says how it answers, and can go and come back."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .plain_server import Server

DROP, HANG = -1, -2


class PlainHttp(Server):
    """`answers` has HTTP statuses in the place of answers to `tools/call`; with `DROP`, the connection is cut
    after the effect. `gate` says the same for every request."""

    def __init__(self, place: Path, era: str = "both") -> None:
        super().__init__(place, era)
        self.answers: list[int] = []
        self.gate = 0
        self.headers: list[dict[str, str]] = []
        self.sessions: set[str] = set()
        self.released = threading.Event()
        self.waiting = threading.Event()

    @contextmanager
    def serve(self, port: int = 0) -> Iterator[str]:
        """Answer at this address."""
        listening = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(self))
        listening.daemon_threads = True
        listening.block_on_close = False
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/mcp"
        finally:
            self.released.set()
            listening.shutdown()
            listening.server_close()
            thread.join()


def _handler_of(server: PlainHttp) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.headers.append(dict(self.headers.items()))
            if server.gate:
                return self.reply(server.gate, b"<html>Not here.</html>", "text/html")
            if "id" not in message:
                return self.reply(202)
            method, params = message["method"], message.get("params", {})
            session = self.headers.get("mcp-session-id")
            if session is not None and session not in server.sessions:
                return self.fail(message, 404, -32600, "Session not found")
            extra = {}
            if method == "initialize":
                extra["mcp-session-id"] = secrets.token_hex(8)
                server.sessions.add(extra["mcp-session-id"])
            answer = server.answers.pop(0) if method == "tools/call" and server.answers else 200
            if answer >= 400:
                return self.reply(answer, b"no", "text/plain")
            try:
                result = server.answer(method, params)
            except LookupError:
                return self.fail(message, 404, -32601, "Method not found")
            if answer == HANG:
                server.waiting.set()
                server.released.wait()
            if answer == DROP:
                self.close_connection = True
                return None
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            return self.reply(200, body, "application/json", extra)

        def fail(self, message: Any, status: int, code: int, text: str) -> None:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}
            self.reply(status, json.dumps(error).encode(), "application/json")

        def reply(
            self,
            status: int,
            body: bytes = b"",
            kind: str = "text/plain",
            extra: dict[str, str] | None = None,
        ) -> None:
            self.send_response(status)
            for key, value in {"Content-Type": kind, **(extra or {})}.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.reply(405)

        def do_DELETE(self) -> None:
            self.reply(200)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler

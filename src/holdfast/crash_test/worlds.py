"""What an agent changes: something that can be set up, read, saved and put back."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from . import boundaries

Announce: TypeAlias = Callable[[str, str, str], bool]
"""Tell of an operation that the harness itself carries out: phase, operation, detail. Whether the process
that asked for it goes on."""

_IDS: Final = r"\b[0-9a-f]{32,64}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
"""Keys of effects and uuids: they are others in each session."""


class CrashWorld:
    """What the scenario changes, in a folder of its own, new for each run.

    Make one of your own by subclassing it: `set_up` prepares it, `facts` reads it. If it keeps anything
    outside of `folder`, `save` and `restore` keep that. `ignore` are regular expressions of what differs from
    run to run, such as times; keys of effects and uuids are ignored in any case.
    """

    folder: Path

    def __init__(self, *, ignore: Sequence[str] = ()) -> None:
        self._ignored = re.compile("|".join([_IDS, *ignore]))

    @property
    def agent_dir(self) -> Path:
        """For what the agent itself keeps, such as its store. Survives the kill, and is not compared."""
        return self.folder / "agent"

    @contextmanager
    def operation(self, name: str, detail: str = "") -> Iterator[None]:
        """Around an operation of your own on the world: it is killed before and after it."""
        boundaries.announce("before", name, detail)
        yield
        boundaries.announce("after", name, detail)

    def set_up(self) -> None:
        """Prepare it, in an empty `folder`. Called in the process of the tests."""

    def facts(self) -> list[str]:
        """All that is so in the world, in any order. The same fact twice counts as twice."""
        raise NotImplementedError(f"{type(self).__name__}.facts")

    def subject(self, fact: str) -> str:
        """What the names of the operations that make this fact contain."""
        return fact.partition(":")[0]

    def save(self) -> Any:
        """What is outside of `folder`, to be put back by `restore`."""
        return None

    def restore(self, saved: Any) -> None:
        """Put back what `save` returned."""

    def settle(self) -> None:
        """Return when nothing is under way that the process began which has just ended."""

    def tear_down(self) -> None:
        """Let go of what `set_up` opened."""

    # What the harness calls.

    def begin(self, folder: Path, announce: Announce) -> Self:
        """A world like this one, at its beginning, in this folder."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))  # Not a copy by `copy`, which would ask for what is pickled.
        made.folder = folder
        made.agent_dir.mkdir(parents=True)
        made.listen(announce)
        made.set_up()
        return made

    def listen(self, announce: Announce) -> None:
        """For worlds that carry out operations in the process of the tests."""

    def masked(self, text: str) -> str:
        """The text without what differs from run to run."""
        return self._ignored.sub("…", text)


class DirectoryWorld(CrashWorld):
    """A directory: `world.path`. Each line of a file in it is a fact."""

    def __init__(self, files: Mapping[str, str] | None = None, *, ignore: Sequence[str] = ()) -> None:
        super().__init__(ignore=ignore)
        self._files = dict(files or {})

    @property
    def path(self) -> Path:
        """The directory that the agent works in."""
        return self.folder / "world"

    def set_up(self) -> None:
        """Make the directory, with its files."""
        self.path.mkdir()
        for name, text in self._files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def facts(self) -> list[str]:
        """`file: line` for each line; `file: (empty)` for an empty file."""
        found: list[str] = []
        for path in sorted(self.path.rglob("*")):
            if path.is_file():
                name = path.relative_to(self.path).as_posix()
                lines = path.read_text(errors="replace").splitlines() or ["(empty)"]
                found.extend(f"{name}: {line}" for line in lines)
        return found


class SqliteWorld(CrashWorld):
    """A SQLite file: `world.path`. Each row is a fact, without a primary key that only counts."""

    def __init__(self, schema: str, *, ignore: Sequence[str] = ()) -> None:
        super().__init__(ignore=ignore)
        self._schema = schema

    @property
    def path(self) -> Path:
        """The file; open it with `sqlite3.connect(world.path)`."""
        return self.folder / "world.db"

    def set_up(self) -> None:
        """Make the file, with its tables and first rows."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executescript(self._schema)

    def facts(self) -> list[str]:
        """`table: {"column": value}` for each row."""
        found: list[str] = []
        with closing(sqlite3.connect(self.path)) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
            for (table,) in tables:
                quoted = '"' + table.replace('"', '""') + '"'
                columns = connection.execute(f"PRAGMA table_info({quoted})").fetchall()
                keys = [one for one in columns if one[5]]
                counting = keys[0][1] if len(keys) == 1 and keys[0][2].upper() == "INTEGER" else None
                names = [one[1] for one in columns]
                for row in connection.execute(f"SELECT * FROM {quoted}"):
                    shown = {name: value for name, value in zip(names, row, strict=True) if name != counting}
                    found.append(f"{table}: {json.dumps(shown, default=repr, sort_keys=True)}")
        return found

    def subject(self, fact: str) -> str:
        """Commits change rows."""
        return "world.db"


class HttpRequest(NamedTuple):
    """A request that the server got. `key` is its Idempotency-Key."""

    method: str
    path: str
    body: str
    key: str | None


class HttpResponse(NamedTuple):
    """What the server answers."""

    status: int
    body: Any = None
    done: bool = True
    """Whether something was done; a request that did nothing is no fact."""


class HttpWorld(CrashWorld):
    """An HTTP server: `world.url`. Each request that changes something is a fact.

    It answers a POST with 201 and what was posted, and a GET with the list of what was posted to that path,
    each with its `key`. With `knows_keys`, a request whose `Idempotency-Key` it has seen gets the first
    answer again, and does nothing. `answer` decides instead: it gets the request and those that were done.
    """

    def __init__(
        self,
        answer: Callable[[HttpRequest, Sequence[HttpRequest]], HttpResponse] | None = None,
        *,
        knows_keys: bool = False,
        ignore: Sequence[str] = (),
    ) -> None:
        super().__init__(ignore=ignore)
        self._answer, self._knows_keys = answer or _answer_plainly, knows_keys
        self.url = ""

    def __getstate__(self) -> dict[str, Any]:
        """What the agent's process needs: where the server is."""
        return {"folder": self.folder, "url": self.url, "_ignored": self._ignored}

    def listen(self, announce: Announce) -> None:
        """Start the server."""
        self._done: list[HttpRequest] = []
        self._answers: dict[str, HttpResponse] = {}
        self._one_at_a_time = threading.Lock()
        self._announce = announce
        self._server = _CountingServer(("127.0.0.1", 0), _handler_of(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def settle(self) -> None:
        """Wait until every connection of the process that ended is closed here, too."""
        with closing(socket.create_connection(("127.0.0.1", self._server.server_port))) as last:
            port = last.getsockname()[1]
        # Connections are accepted in order: after this one, there is none left of the process.
        self._server.wait_for_end(port)

    def tear_down(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def handle(self, request: HttpRequest) -> HttpResponse | None:
        """Answer; None if the process that asked is gone."""
        operation, detail = f"{request.method} {request.path}", self.masked(request.body)
        if request.method in ("GET", "HEAD"):
            with self._one_at_a_time:
                return self._answer(request, tuple(self._done))
        if not self._announce("before", operation, detail):
            return None
        with self._one_at_a_time:
            response = self._answers.get(request.key or "") if self._knows_keys else None
            if response is None:
                response = self._answer(request, tuple(self._done))
                if response.done:
                    self._done.append(request)
                if request.key:
                    self._answers[request.key] = response
        return response if self._announce("after", operation, detail) else None

    def facts(self) -> list[str]:
        """`method path: body` for each request that did something."""
        return [f"{one.method} {one.path}: {one.body}" for one in self._done]

    def subject(self, fact: str) -> str:
        """Method and path."""
        return fact.partition(": ")[0]

    def save(self) -> Any:
        """What was done."""
        return list(self._done), dict(self._answers)

    def restore(self, saved: Any) -> None:
        """Forget what came after."""
        done, answers = saved
        self._done, self._answers = list(done), dict(answers)


class _CountingServer(ThreadingHTTPServer):
    """Knows which connections are open."""

    _SETTLE_S: Final = 180.0

    def __init__(self, *args: Any) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self._ports: set[int] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count it, in the thread that accepts."""
        with self._changed:
            self._open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve it, in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._open -= 1
                self._ports.add(client_address[1])
                self._changed.notify_all()

    def wait_for_end(self, port: int) -> None:
        """Return when the connection from this port, and all before it, are closed."""
        with self._changed:
            if not self._changed.wait_for(lambda: port in self._ports and not self._open, self._SETTLE_S):
                raise RuntimeError("a connection to the world stays open after its process ended")
            self._ports.clear()


def _answer_plainly(request: HttpRequest, done: Sequence[HttpRequest]) -> HttpResponse:
    path, _, _ = request.path.partition("?")
    if request.method in ("GET", "HEAD"):
        posted = [one for one in done if one.path.partition("?")[0] == path]
        return HttpResponse(200, [{"key": one.key, "body": _as_json(one.body)} for one in posted], done=False)
    return HttpResponse(201, _as_json(request.body))


def _as_json(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


def _handler_of(world: HttpWorld) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
            request = HttpRequest(self.command, self.path, body, self.headers.get("Idempotency-Key"))
            response = world.handle(request)
            if response is None:
                self.close_connection = True
                return
            data = json.dumps(response.body).encode()
            self.send_response(response.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                # The process that asked was killed; there is nothing left to tell it.
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the facts are the log."""

    return Handler


def copy_folder(source: Path, target: Path) -> None:
    """Make `target` what `source` is."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)

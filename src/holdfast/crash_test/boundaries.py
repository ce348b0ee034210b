"""In the process that is killed: see where it stands, and tell the harness before it goes on.

A boundary is the moment before or after a commit of a holdfast store, an operation of the world, a change of
a file in the case's folder, or a commit of a SQLite file there. The process waits for an answer at each of
them, so the harness kills it exactly there. Without a harness, nothing here does anything.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import re
import site
import socket
import sqlite3
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

Line: TypeAlias = tuple[str, int]
"""A file and a line in it."""

_OWN = str(Path(__file__).resolve().parents[1]) + os.sep
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.truncate": 1, "os.link": 2}
"""Events that change a directory, and how many paths each of them has."""
_SQL_CHANGE = re.compile(r"\s*(insert|update|delete|replace|create|drop|alter)\b", re.IGNORECASE)
_SQL_TABLE = re.compile(
    r"\b(?:into|update|from|table(?:\s+if\s+not\s+exists)?)\s+[\"'`\[]?(\w+)", re.IGNORECASE
)
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")


class HarnessChannel:
    """The way to the harness. One thread speaks at a time, and waits for the answer."""

    def __init__(self, end: socket.socket, folder: Path) -> None:
        self.folder = os.path.realpath(folder) + os.sep
        self._temporary = os.path.join(self.folder, "tmp")
        self._end = end
        self._stream = end.makefile("rwb")
        self._lock = threading.Lock()
        self._speaking = threading.local()

    def ask(self, message: dict[str, Any]) -> Any:
        """Send it and wait for the answer; the process ends if the harness is gone."""
        with self._lock:
            self._speaking.now = True
            try:
                self._stream.write(json.dumps(message).encode() + b"\n")
                self._stream.flush()
                answer = self._stream.readline()
            finally:
                self._speaking.now = False
        if not answer:
            os._exit(70)
        return json.loads(answer)

    @property
    def is_speaking(self) -> bool:
        """Whether this thread is in `ask`."""
        return bool(getattr(self._speaking, "now", False))

    def find_name(self, path: object) -> str | None:
        """The path as seen from the case's folder, or None if it is elsewhere."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        full = os.path.abspath(os.fsdecode(path))
        if not full.startswith(self.folder):
            full = os.path.realpath(full)
        if not full.startswith(self.folder) or full.startswith(self._temporary):
            return None
        return _TEMPORARY.sub("tmp…", full[len(self.folder) :])


_channel: HarnessChannel | None = None
_tasks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_task_numbers = itertools.count(1)


def connect(channel: HarnessChannel) -> None:
    """Watch this process for good, and tell the harness through the channel."""
    global _channel
    _channel = channel
    sys.addaudithook(_see_event)


def find_channel() -> HarnessChannel | None:
    """The way to the harness, if there is one."""
    return _channel


def announce(phase: str, operation: str, detail: str = "") -> None:
    """Tell the harness of an operation of the world, in the thread that makes it."""
    if _channel is not None:
        _channel.ask(
            {
                "at": phase,
                "operation": operation,
                "detail": detail,
                "lines": user_lines(1),
                "strand": _find_strand(),
            }
        )


def note_request(method: str, url: str) -> None:
    """Tell the harness which line makes a request; the server tells when it arrives."""
    if _channel is not None:
        _channel.ask({"request": f"{method} {url}", "lines": user_lines(1), "strand": _find_strand()})


def _find_strand() -> int:
    """The number of the task that is running; 0 without one, -1 in a worker thread."""
    if threading.current_thread() is not threading.main_thread():
        return -1
    task: Any = None
    with suppress(RuntimeError):
        task = asyncio.current_task()
    if task is None and (trio := sys.modules.get("trio")) is not None:
        with suppress(RuntimeError):
            task = trio.lowlevel.current_task()
    if task is None:
        return 0
    if task not in _tasks:
        _tasks[task] = next(_task_numbers)
    return _tasks[task]


# -- lines of the user's code --------------------------------------------------------------------------


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    found.update([*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)])
    return tuple(sorted(os.path.realpath(one) + os.sep for one in found))


@functools.cache
def is_users(file: str) -> bool:
    """Whether the file is neither Python's, nor of an installed library, nor holdfast's."""
    if file.startswith("<"):
        return False
    real = os.path.realpath(file)
    return not real.startswith((*_library_folders(), _OWN))


def user_lines(skip: int = 0) -> list[Line]:
    """The lines of the user's code that are being executed, innermost first."""
    frame: FrameType | None = sys._getframe(skip + 1)
    found: list[Line] = []
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def _is_holdfast_writing() -> bool:
    """Whether the innermost caller outside of Python's library is holdfast, whose commits are watched."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = os.path.realpath(frame.f_code.co_filename)
        if file != os.path.realpath(__file__) and not _is_pythons(file):
            return file.startswith(_OWN)
        frame = frame.f_back
    return False


@functools.cache
def _is_pythons(file: str) -> bool:
    stdlib = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
    return file.startswith("<") or (file.startswith(stdlib) and "site-packages" not in file)


# -- files ---------------------------------------------------------------------------------------------


def _see_event(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook: called before a file is opened, renamed or removed."""
    if event != "open" and event not in _CHANGES:
        return
    channel = _channel
    if channel is None or channel.is_speaking:
        return
    if event == "open":
        if not args[2] & _WRITING:
            return
        verb, paths = "write", args[:1]
    else:
        verb, paths = event.partition(".")[2], args[: _CHANGES[event]]
    names = [name for one in paths if (name := channel.find_name(one)) is not None]
    if names and not _is_holdfast_writing():
        announce("before", f"{verb} {' to '.join(names)}")


# -- SQLite --------------------------------------------------------------------------------------------


def watch_sqlite() -> None:
    """Make connections of Python's `sqlite3` tell of commits. Before the user's code is imported."""
    connect_as_before = sqlite3.connect

    @functools.wraps(connect_as_before)
    def connect(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect_as_before(database, *args, **options)
        name = None if _channel is None else _channel.find_name(database)
        if name is not None:
            connection.set_trace_callback(functools.partial(_see_statement, connection, name))
        return connection

    for module in (sqlite3, sqlite3.dbapi2):
        vars(module)["connect"] = connect


def _see_statement(connection: sqlite3.Connection, name: str, statement: str) -> None:
    """Called before each statement."""
    if statement.strip().upper().startswith(("COMMIT", "END")):
        announce("before", f"commit {name}")
    elif (change := _SQL_CHANGE.match(statement)) and not connection.in_transaction:
        table = _SQL_TABLE.search(statement)
        announce("before", f"{change[1].lower()} {table[1] if table else name}", statement)


# -- commits of holdfast -------------------------------------------------------------------------------


def watch_stores() -> None:
    """Make the drivers of all stores that are opened from now on tell of their commits."""
    from ..store import store

    find_as_before = vars(store)["find_driver"]

    def find_driver(*args: Any, **options: Any) -> Callable[[], Any]:
        open_as_before = find_as_before(*args, **options)
        return lambda: _watch_driver(open_as_before())

    vars(store)["find_driver"] = find_driver


def _watch_driver(driver: Any) -> Any:
    if getattr(driver.commit, "tells_the_harness", False):
        return driver
    commit_as_before = driver.commit

    def commit(batch: Sequence[Any], **options: Any) -> Any:
        channel = _channel
        if channel is None:
            return commit_as_before(batch, **options)
        entries = list(_entries_of(batch))
        channel.ask({"at": "before", "entries": entries, "lines": user_lines(), "doubts": {}})
        outcomes = commit_as_before(batch, **options)
        landed = {
            one.session for one, outcome in zip(batch, outcomes, strict=True) if hasattr(outcome, "posted")
        }
        entries = [entry for entry in entries if entry[0] in landed]
        doubts = {one.session: one.head.in_doubt for one in batch if one.session in landed}
        if entries:
            channel.ask({"at": "after", "entries": entries, "lines": user_lines(), "doubts": doubts})
        return outcomes

    commit.tells_the_harness = True  # type: ignore[attr-defined]
    driver.commit = commit
    return driver


def _entries_of(batch: Iterable[Any]) -> Iterable[tuple[str, int, str, Any]]:
    """Session, seq, kind and the facts of the body of each entry that is about to be committed."""
    for append in batch:
        for chunk in append.chunks:
            facts = json.loads(chunk.facts)
            for number, entry in enumerate(facts["entries"], facts["seq"]):
                yield append.session, number, entry["kind"], entry["body"]


# -- requests over HTTP --------------------------------------------------------------------------------


def watch_requests() -> None:
    """Make clients say which line makes a request: those that build on `http.client`, httpx and httpx2."""
    import http.client

    put_as_before = http.client.HTTPConnection.putrequest

    def putrequest(self: Any, method: str, url: str, *args: Any, **options: Any) -> None:
        note_request(method, url)
        put_as_before(self, method, url, *args, **options)

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    for name in ("httpx", "httpx2"):
        module = sys.modules.get(name)
        if module is not None:
            _watch_client(module)


def _watch_client(module: Any) -> None:
    send_as_before, async_send_as_before = module.Client.send, module.AsyncClient.send

    def send(self: Any, request: Any, **options: Any) -> Any:
        note_request(request.method, request.url.raw_path.decode())
        return send_as_before(self, request, **options)

    async def async_send(self: Any, request: Any, **options: Any) -> Any:
        note_request(request.method, request.url.raw_path.decode())
        return await async_send_as_before(self, request, **options)

    module.Client.send, module.AsyncClient.send = send, async_send

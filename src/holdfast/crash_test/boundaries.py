"""In the process that is killed: see where it stands, and tell the harness before it goes on.

A boundary is the moment before or after a commit of a holdfast store, an operation of the world, a change of
a file in the case's folder, or a commit of a SQLite file there; and the moment when a file that is written
anew is still empty. The process waits for an answer at each of
them, so the harness kills it exactly there. Without a harness, nothing here does anything.
"""

from __future__ import annotations

import builtins
import functools
import io
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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from ..system.aio import find_task

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
_has_store = False
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


def announce(
    phase: str, operation: str, detail: str = "", *, by_framework: bool = False, nth: int | None = None
) -> None:
    """Tell the harness of an operation of the world, in the thread that makes it."""
    if _channel is not None:
        _channel.ask(
            {
                "at": phase,
                "operation": operation,
                "detail": detail,
                "lines": user_lines(1),
                "strand": _find_strand(),
                "by_framework": by_framework,
                "nth": nth,
            }
        )


def announce_framework(phase: str, operation: str, detail: str = "") -> None:
    """Tell the harness where a framework stands, as long as no holdfast store does."""
    if not _has_store:
        announce(phase, operation, detail, by_framework=True)


def note_request(method: str, url: str) -> None:
    """Tell the harness which line makes a request; the server tells when it arrives."""
    if _channel is not None:
        _channel.ask({"request": f"{method} {url}", "lines": user_lines(1), "strand": _find_strand()})


def _find_strand() -> int:
    """The number of the task that is running; 0 without one, -1 in a worker thread."""
    if threading.current_thread() is not threading.main_thread():
        return -1
    task = find_task()
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
        operation = f"{verb} {' to '.join(names)}"
        with _counting:
            _changes[operation] += 1
            _seen.last = operation, _changes[operation]
        announce("before", operation, nth=_seen.last[1])


_changes: Counter[str] = Counter()
_counting = threading.Lock()
_seen = threading.local()
"""`last`: the change that this thread is about to make, and how often it was made."""


def _take_seen() -> tuple[str, int] | None:
    """What `_see_event` saw last in this thread."""
    found: tuple[str, int] | None = getattr(_seen, "last", None)
    _seen.last = None
    return found


def watch_files() -> None:
    """Make `open` and the functions that change a directory tell of their ends. Before the user's code is
    imported."""
    for name in ("rename", "replace", "remove", "unlink", "rmdir", "mkdir", "truncate", "link"):
        setattr(os, name, _telling_its_end(vars(os)[name]))
    open_as_before = builtins.open

    @functools.wraps(open_as_before)
    def open(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
        if _channel is None or buffering == 0 or not _NEW_FILE.fullmatch(mode):
            return open_as_before(file, mode, buffering, *args, **options)
        return _open_watched(open_as_before, file, mode, buffering, *args, **options)

    for module in (builtins, io):
        vars(module)["open"] = open


_NEW_FILE = re.compile(r"[bt]?[wax][bt]?")


def _telling_its_end(change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(change)
    def changed(*args: Any, **options: Any) -> Any:
        _take_seen()
        result = change(*args, **options)
        seen = _take_seen()
        if seen is not None:
            announce("after", seen[0], nth=seen[1])
        return result

    return changed


def _open_watched(
    open_as_before: Callable[..., Any],
    file: Any,
    mode: str,
    buffering: int,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """What `open` returns, made of the same parts, of which the lowest tells what it does."""
    if not isinstance(file, str | bytes | os.PathLike) or ("b" in mode and (encoding or errors or newline)):
        return open_as_before(file, mode, buffering, encoding, errors, newline, closefd, opener)
    _take_seen()
    raw = _WatchedFile(os.fspath(file), mode.strip("bt"), closefd, opener)
    seen = _take_seen()
    if seen is not None:
        raw.operation, raw.nth, raw.is_empty = seen[0], seen[1], "a" not in mode
    try:
        buffer = io.BufferedWriter(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        if "b" in mode:
            return buffer
        text = io.TextIOWrapper(buffer, encoding, errors, newline, line_buffering=buffering == 1)
    except BaseException:
        raw.close()
        raise
    vars(text)["mode"] = mode
    return text


class _WatchedFile(io.FileIO):
    """A file that is written. `operation` is empty for one elsewhere."""

    operation = ""
    nth = 0
    is_empty = False

    def write(self, data: Any, /) -> int:
        """Tell before the first bytes of a file that was made or made empty."""
        if self.operation and self.is_empty:
            self.is_empty = False
            announce("during", self.operation, nth=self.nth)
        return super().write(data)

    def close(self) -> None:
        """Tell when it is closed."""
        if self.closed:
            return
        super().close()
        if self.operation:
            announce("after", self.operation, nth=self.nth)


# -- SQLite --------------------------------------------------------------------------------------------


def watch_sqlite() -> None:
    """Make connections of Python's `sqlite3` tell of commits. Before the user's code is imported."""
    connect_as_before = sqlite3.connect

    @functools.wraps(connect_as_before)
    def connect(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        name = None if _channel is None else _channel.find_name(database)
        if name is not None and len(args) < _FACTORY:
            options.setdefault("factory", _WatchedConnection)
        connection: sqlite3.Connection = connect_as_before(database, *args, **options)
        if name is not None:
            connection.set_trace_callback(functools.partial(_see_statement, connection, name))
        return connection

    for module in (sqlite3, sqlite3.dbapi2):
        vars(module)["connect"] = connect


def _see_statement(connection: sqlite3.Connection, name: str, statement: str) -> None:
    """Called before each statement."""
    if statement.strip().upper().startswith(("COMMIT", "END")):
        operation, detail = f"commit {name}", ""
    elif (change := _SQL_CHANGE.match(statement)) and not connection.in_transaction:
        table = _SQL_TABLE.search(statement)
        operation, detail = f"{change[1].lower()} {table[1] if table else name}", statement
    else:
        return
    announce("before", operation, detail)
    if isinstance(connection, _WatchedConnection):
        connection.begun.append((operation, detail))


_FACTORY = 5
"""The place of the factory among the arguments of `sqlite3.connect`, without the database."""


class _WatchedConnection(sqlite3.Connection):
    """Tells when what it began is committed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.begun: list[tuple[str, str]] = []
        super().__init__(*args, **options)

    def tell(self, work: Callable[..., Any], *args: Any) -> Any:
        """What `work` returns, after the harness was told what is committed by now."""
        try:
            result = work(*args)
        except BaseException:
            self.begun.clear()
            raise
        # With `autocommit=False`, the next transaction begins with the commit of the last one.
        is_over = not self.in_transaction
        ended = [one for one in self.begun if is_over or one[0].startswith("commit ")]
        self.begun = [one for one in self.begun if one not in ended]
        for operation, detail in ended:
            announce("after", operation, detail)
        return result

    def cursor(self, factory: Any = None) -> Any:
        """A cursor that tells, too."""
        return super().cursor(factory or _WatchedCursor)

    def execute(self, *args: Any) -> Any:
        """With a cursor of its own."""
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        """With a cursor of its own."""
        return self.cursor().executemany(*args)

    def executescript(self, *args: Any) -> Any:
        """With a cursor of its own."""
        return self.cursor().executescript(*args)

    def commit(self) -> None:
        """Commit."""
        self.tell(super().commit)

    def __exit__(self, *raised: Any) -> Any:
        """Commit, or roll back."""
        return self.tell(super().__exit__, *raised)


class _WatchedCursor(sqlite3.Cursor):
    def execute(self, *args: Any) -> Any:
        return self._tell(super().execute, *args)

    def executemany(self, *args: Any) -> Any:
        return self._tell(super().executemany, *args)

    def executescript(self, *args: Any) -> Any:
        return self._tell(super().executescript, *args)

    def _tell(self, work: Callable[..., Any], *args: Any) -> Any:
        if isinstance(self.connection, _WatchedConnection):
            return self.connection.tell(work, *args)
        return work(*args)


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
    global _has_store
    _has_store = True
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
    for name in ("claim", "post"):
        setattr(driver, name, _telling(name, getattr(driver, name)))
    return driver


def _telling(operation: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """A change of the store that is no commit: a claim, or a message for an inbox."""

    @functools.wraps(change)
    def changed(*args: Any, **options: Any) -> Any:
        _ask_about("before", operation)
        result = change(*args, **options)
        _ask_about("after", operation)
        return result

    return changed


def _ask_about(phase: str, operation: str) -> None:
    if _channel is not None:
        message = {"at": phase, "operation": operation, "detail": "", "lines": user_lines(1)}
        _channel.ask({**message, "strand": None, "by_framework": True})


def _entries_of(batch: Iterable[Any]) -> Iterable[tuple[str, int, str, Any]]:
    """Session, seq, kind and the facts of the body of each entry that is about to be committed."""
    for append in batch:
        for chunk in append.chunks:
            facts = json.loads(chunk.facts)
            for number, entry in enumerate(facts["entries"], facts["seq"]):
                yield append.session, number, entry["kind"], entry["body"]

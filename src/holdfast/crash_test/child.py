"""The processes that are killed: one that runs the user's code once, and the server that forks such ones.

The server is a fresh process that has imported the user's module, and has no thread of its own: forking a
process with threads can deadlock. Where that cannot be had, each process is started afresh.
"""

from __future__ import annotations

import base64
import ctypes
import gc
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import anyio

from . import boundaries, libraries

_MESSAGE_BYTES_MAX = 1 << 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def run_one(fd: int) -> NoReturn:
    """A fresh process for one life; `fd` is its end of the way to the harness."""
    boundaries.watch_files()
    boundaries.watch_sqlite()
    _live(socket.socket(fileno=fd))


def serve(fd: int) -> None:
    """Fork a process for each request that comes with a socket, until the harness is gone."""
    requests = socket.socket(fileno=fd)
    boundaries.watch_files()
    boundaries.watch_sqlite()
    # Children and their orphans are gone as soon as they have ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, fds, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES_MAX, 1)
        if not data:
            return
        order = json.loads(data)
        if "load" in order:
            requests.send(json.dumps(_load(order)).encode())
            continue
        gc.freeze()  # What no child collects stays shared.
        pid = os.fork()
        if pid == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _live(socket.socket(fileno=fds[0]))
        os.close(fds[0])
        requests.send(json.dumps({"pid": pid}).encode())


def _load(order: dict[str, Any]) -> dict[str, Any]:
    """Import the user's module and what it needed in an earlier life. Says whether forking is safe."""
    import_module(*order["load"])
    for name in order["modules"]:
        # What cannot be imported by its name alone is imported in each child, as the user's code does it.
        with suppress(Exception):
            importlib.import_module(name)
    return {"threads": _count_threads()}


def _count_threads() -> int:
    """Threads of this process, also those that are not Python's."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def import_module(name: str, file: str) -> ModuleType:
    """The module that the harness has under this name: from the same file."""
    if name in sys.modules:
        return sys.modules[name]
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None and os.path.samefile(found.origin, file):
            return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _live(end: socket.socket) -> NoReturn:
    """Run the function that the harness names, and tell it how that ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with end.makefile("rb") as stream:
        order = json.loads(stream.readline())
    folder = Path(order["folder"])
    # What holders lock on this machine is beneath it: it is saved and restored with the rest.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    channel = boundaries.HarnessChannel(end, folder)
    try:
        loaded = set(sys.modules)
        libraries.watch_libraries()
        module = import_module(order["module"], order["file"])
        function = module
        for part in order["function"].split("."):
            function = getattr(function, part)
        world = pickle.loads(base64.b64decode(order["world"]))
        boundaries.watch_stores()
        boundaries.connect(channel)
        result = call(function, world)
        channel.ask({"at": "before", "operation": "end", "detail": "", "lines": [], "strand": 0})
        ended: dict[str, Any] = {"ended": True, "result": _as_text(result)}
        if order["first"]:
            ended["modules"] = sorted(set(sys.modules) - loaded)
            ended["tools"] = _find_tools()
    except BaseException as error:
        ended = {
            "ended": True,
            "error": f"{type(error).__name__}: {error}"[:2000],
            "trace": traceback.format_exc()[-8000:],
            "lines": _lines_of(error),
        }
    channel.ask(ended)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def call(function: Any, world: Any) -> Any:
    """What the function returns; an async one runs in an event loop."""
    result = function(world)
    return anyio.run(_await, result) if inspect.isawaitable(result) else result


async def _await(result: Any) -> Any:
    return await result


def _as_text(result: object) -> str | None:
    if result is None:
        return None
    try:
        return json.dumps(result, sort_keys=True)
    except (TypeError, ValueError):
        return repr(result)


def _lines_of(error: BaseException) -> list[boundaries.Line]:
    """Lines of the user's code in the traceback, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [(one.filename, one.lineno or 0) for one in frames if boundaries.is_users(one.filename)]
    return users[::-1]


def _find_tools() -> list[dict[str, Any]]:
    """The tools that are declared: where their bodies are, and what they do to the world."""
    declaration = sys.modules.get("holdfast.tools.declaration")
    found: list[dict[str, Any]] = []
    if declaration is None:
        return found
    gc.unfreeze()
    for one in gc.get_objects():
        if type(one) is declaration.Tool:
            code = getattr(inspect.unwrap(one.function), "__code__", None)
            if code is not None and boundaries.is_users(code.co_filename):
                last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
                place = {"file": code.co_filename, "first": code.co_firstlineno, "last": last}
                found.append({"name": one.name, "effects": list(one.sorted_effects), **place})
    return sorted(found, key=lambda one: (one["name"], one["file"], one["first"]))

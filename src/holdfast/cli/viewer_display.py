"""Serve the viewer on this machine, and stop it on signals (`ui`)."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
from anyio import to_thread

from ..adapters.compat import check_versions
from ..errors import BadInput
from ..redact import without_password
from ..store.store import Store
from ..system import randomness
from .console import print_line, print_text, say
from .exit_codes import Exit, Stop
from .options import Common

check_versions("holdfast ui", "viewer", {"starlette": ((1, 0), 2), "uvicorn": ((0, 40), None)})

import uvicorn  # noqa: E402

from ..viewer.app import app  # noqa: E402
from ..viewer.security import ANY_ADDRESS, LOOPBACK, TOKEN  # noqa: E402

_PORT: Final = 7465
_GRACE_S: Final = 3
"""How long answers under way may take once the viewer is stopped."""


async def show_viewer(
    store: Store,
    common: Common,
    *,
    host: str,
    port: int | None,
    open_browser: bool,
    allow_changes: bool,
    read_only: bool,
    names: Collection[str],
    root_path: str,
) -> int:
    """Serve until a signal comes; return the exit code."""
    listening = _listen(host, port)
    found_port = listening.getsockname()[1]
    token = randomness.token_hex(24)
    viewer = app(
        store,
        allow_changes=allow_changes,
        read_only=read_only,
        root_path=root_path,
        hosts={*LOOPBACK, *names, ANY_ADDRESS if _is_wildcard(host) else host},
        token=token,
        url=common.store,
        blobs=common.blobs,
    )
    shown = "127.0.0.1" if _is_wildcard(host) else host
    place = f"[{shown}]" if ":" in shown else shown
    address = f"http://{place}:{found_port}{root_path.rstrip('/')}/?{TOKEN}={token}"
    server = _ViewerServer(
        uvicorn.Config(
            viewer,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )
    # From here on: who has seen the address may press Ctrl-C.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        _say_where(common, address, found_port, host, read_only=read_only)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signals, signals, server)
            if open_browser:
                tasks.start_soon(_open_browser, address)
            await server.serve([listening])
            tasks.cancel_scope.cancel()
    return Exit.DONE


def _say_where(common: Common, address: str, port: int, host: str, *, read_only: bool) -> None:
    if common.json:
        print_line({"url": address, "port": port, "store": without_password(common.store)})
    else:
        print_text(address)
    if not _is_loopback(host):
        answering = "" if read_only else " and answer what waits in it"
        say(
            f"every machine that reaches {host}, port {port}, and has this address can read the store"
            f"{answering}. The connection is not encrypted: put a proxy with TLS in front, and name it with "
            "--allow-host"
        )
    say("it ends with Ctrl-C")


class _ViewerServer(uvicorn.Server):
    """A server that leaves signals to the command: uvicorn would raise them again at the end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _stop_on_signals(signals: AsyncIterator[signal.Signals], server: uvicorn.Server) -> None:
    async for _ in signals:
        server.force_exit = server.should_exit  # With the second one, answers under way are cut.
        server.should_exit = True


def _has_screen() -> bool:
    """Whether a browser would have a window: others would take over the terminal."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


async def _open_browser(address: str) -> None:
    if not _has_screen():
        say("there is no screen here: open the address in a browser")
    elif not await to_thread.run_sync(webbrowser.open, address, abandon_on_cancel=True):
        say("no browser could be opened: open the address yourself")


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens there; at a free port if none was given, and the usual one is taken."""
    try:
        return _bind(host, _PORT if port is None else port)
    except OSError as error:
        if port is not None:
            raise Stop(Exit.ERROR, f"{host}, port {port}: {error.strerror or error}") from error
    try:
        return _bind(host, 0)
    except OSError as error:
        raise Stop(Exit.USAGE, f"--host {host}: {error.strerror or error}") from error


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise BadInput(f"--host {host!r} is no address of this machine: {error}") from error
    listening = socket.socket(family, kind, protocol)
    try:
        # A port whose last connections are just closing is free; one on which a process listens is not.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host

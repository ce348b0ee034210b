"""A viewer in a process of its own, as `holdfast ui` starts it."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import anyio

from tests.cli.cli_processes import end, start


class Served(NamedTuple):
    """A viewer that runs. `entrance` is its address with the token."""

    entrance: str
    pid: int

    @property
    def base(self) -> str:
        """Its address, without a path."""
        parts = urlsplit(self.entrance)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def port(self) -> int:
        """Where it listens."""
        port = urlsplit(self.entrance).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        """What opens it."""
        return parse_qs(urlsplit(self.entrance).query)["token"][0]

    @property
    def cookie(self) -> dict[str, str]:
        """What a browser keeps of the token."""
        return {f"holdfast-{self.port}": self.token}

    def open(self, path: str) -> str:
        """The address of a page, for a browser that comes for the first time."""
        return f"{self.base}{path}{'&' if '?' in path else '?'}token={self.token}"


def run_apart(work: Callable[[Path], Awaitable[None]], place: Path) -> None:
    """Run it in a thread: in that of the tests, a browser has an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, work, place).result()


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    """The viewer of the store in a folder, for the length of the block. It ends by Ctrl-C."""
    process = start(folder, "ui", "--no-open", "--port", "0", "--json", *options)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, end(process).err
        yield Served(json.loads(line)["url"], process.pid)
        process.send_signal(signal.SIGINT)
        done = end(process)
        assert done.code == 0, done.err
        assert "Traceback" not in done.err
    finally:
        process.kill()
        process.wait()

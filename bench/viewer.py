"""What the viewer costs: time to the first page, memory, and what a process that writes notices of it.

    python bench/viewer.py [--quick] [--rounds N] [--directory DIR] [--json FILE]

A store in SQLite with 10,000 sessions, one hundred of which wait for a person, and one of 10,000 steps. Each
round starts `holdfast ui` anew and asks for pages over HTTP, as a browser does, up to the last byte; then a
process writes steps into another session, without an open page and with two of them, in turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
import msgspec
from msgspec.structs import replace

# In the place of this folder: the names of its scripts are those of other people's modules.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import holdfast  # noqa: E402
from bench.figures import Results  # noqa: E402
from bench.scale import make_many, step  # noqa: E402
from bench.tables import viewer_table  # noqa: E402
from bench.view import View  # noqa: E402
from holdfast.core import entries as kinds  # noqa: E402
from holdfast.core.budget import Usage  # noqa: E402
from holdfast.core.codec import NewEntry  # noqa: E402
from holdfast.core.entries import Body, CallRef  # noqa: E402
from holdfast.core.session_state import SessionState  # noqa: E402
from holdfast.drivers.contract import Done  # noqa: E402
from holdfast.drivers.url import find_driver  # noqa: E402
from holdfast.engine.committer import make_append  # noqa: E402
from holdfast.ids import SessionId  # noqa: E402
from holdfast.messages import CallPart, Message, Text, ToolCall, encode_message  # noqa: E402
from holdfast.system.clock import utc_now  # noqa: E402

SESSIONS: Final = 10_000
STEPS: Final = 10_000
WRITTEN: Final = 300
"""Steps that are written in each turn."""
LOOK_S: Final = 2.0
"""How often an open page asks what is new."""


# -- the store ---------------------------------------------------------------------------------------------


def write_long(url: str, steps: int) -> None:
    """A session of so many steps: a request to a model, and a call of a tool."""
    state, now = SessionState(SessionId("long")), utc_now() - timedelta(days=1)
    new: list[NewEntry] = []

    def add(body: Body, content: bytes | None = None, run: str | None = "run-1") -> int:
        new.append(state.append(body, now, run, content))
        return state.seq

    add(kinds.SessionOpened(id="long", uid="u-long", agent="clerk"), run=None)
    add(kinds.LeaseTaken(holder="h-1", name="agent@batch-1"), run=None)
    add(kinds.RunStarted(agent="clerk", model="sonnet-9"))
    said = Message(role="user", blocks=(Text("Go through all files"),))
    add(kinds.MessageAdded(role="user", title="Go through all files"), encode_message(said))
    for number in range(1, steps + 1):
        request = add(kinds.ModelRequested(model="sonnet-9"))
        now += timedelta(seconds=1 + number % 5)
        call = ToolCall(id=f"c{number}", name="read_file", args={"path": f"src/{number}.py"})
        reply = add(
            kinds.ModelReplied(
                parts=(CallPart(call.id, call.name),),
                request=request,
                usage=Usage(input_tokens=900, output_tokens=130),
                cost_usd=0.004,
            ),
            encode_message(Message(role="assistant", blocks=(Text(f"File {number}."), call))),
        )
        now += timedelta(seconds=0.1)
        add(
            kinds.ToolRan(
                call=CallRef(id=call.id, reply=reply),
                tool=call.name,
                args=call.args,
                fingerprint=f"f{number}",
                side_effects=("read",),
                latency_ms=100.0,
            ),
            b'{"text":"x = 1"}',
        )
        add(kinds.CheckpointTaken(version=number))
    add(kinds.RunCompleted())
    add(kinds.LeaseReleased(), run=None)
    driver = find_driver(url, create=True)()
    (outcome,) = driver.commit([make_append(new, after=None, head=replace(state.facts.head))])
    assert isinstance(outcome, Done), outcome
    driver.close()


# -- the viewer --------------------------------------------------------------------------------------------


class Viewer:
    """A running viewer, asked as a browser does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._pid = process.pid
        parts = urlsplit(json.loads(process.stdout.readline())["url"])
        assert parts.port is not None
        self._port = parts.port
        self._cookie = f"holdfast-{parts.port}={parse_qs(parts.query)['token'][0]}"

    def ask(self, path: str) -> tuple[float, str]:
        """The milliseconds until the last byte of a page, and the page."""
        began_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("GET", path, headers={"Cookie": self._cookie})
        response = connection.getresponse()
        page = response.read().decode()
        assert response.status == 200, (path, response.status)
        connection.close()
        return (time.perf_counter() - began_s) * 1000, page

    @property
    def memory_mb(self) -> float:
        """What its process needed at its peak."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1000


@contextmanager
def viewing(url: str) -> Iterator[Viewer]:
    """A viewer of the store, for the length of the block."""
    command = [sys.executable, "-m", "holdfast", "ui", "--no-open", "--port", "0", "--json", "--store", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield Viewer(process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@contextmanager
def open_pages(viewer: Viewer, *sources: str) -> Iterator[None]:
    """Pages that ask again and again what is new."""
    closed = threading.Event()

    def look() -> None:
        while True:
            for source in sources:
                viewer.ask(source)
            if closed.wait(LOOK_S):
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def find_source(page: str, id: str) -> str:
    """Where the part of a page with this id comes from."""
    found = re.search(rf'id="{id}" data-live="([^"]+)"', page)
    assert found is not None, id
    return found[1].replace("&amp;", "&")


# -- measuring ---------------------------------------------------------------------------------------------


def measure(url: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Milliseconds of each page, megabytes, and microseconds of a step, of each round."""
    found: dict[str, list[float]] = {}

    def note(what: str, figure: float) -> None:
        found.setdefault(what, []).append(figure)

    for number in range(rounds):
        with viewing(url) as viewer:
            note("memory, started", viewer.memory_mb)
            for what, path in (
                ("sessions", "/"),
                ("needs you", "/needs"),
                ("10,000 steps", "/sessions/long"),
            ):
                first_ms, page = viewer.ask(path)
                note(f"{what}, first", first_ms)
                note(f"{what}, again", statistics.median(viewer.ask(path)[0] for _ in range(3)))
                if what == "sessions":
                    source = find_source(page, "sessions")
            note("memory, after", viewer.memory_mb)
            name = f"written-{number}"
            note("a step, alone", anyio.run(write_steps, url, name, steps))
            with open_pages(viewer, source, f"/sessions/{name}"):
                note("a step, beside pages", anyio.run(write_steps, url, name, steps))
    return found


async def write_steps(url: str, name: str, count: int) -> float:
    """Microseconds a step, of so many."""
    async with holdfast.open_store(url) as store, store.session(name) as session:
        began_s = time.perf_counter()
        for _ in range(count):
            await step(session, "Where is order 42?", "It left our warehouse this morning.")
        return (time.perf_counter() - began_s) / count * 1e6


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write the figures where told."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, with a smaller store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--directory", type=Path, help="where the store is made; by default in the temporary one"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    share = 20 if options.quick else 1
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        url = f"sqlite:{folder}/agents.db"
        anyio.run(make_many, url, SESSIONS // share)
        write_long(url, STEPS // share)
        found = measure(url, 1 if options.quick else options.rounds, WRITTEN // share)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(found))
    print("\n".join(viewer_table(View(Results(viewer=found)))))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What `holdfast mcp proxy` adds to a call of an MCP server on stdio.

    python bench/proxy.py [--quick] [--rounds N] [--directory DIR] [--json FILE]

A server that does nothing is asked directly and through the proxy, in turns, round by round, so that noise
hits both alike. A call of a tool that acts is durable before the server sees it, and its outcome before the
client does: two raw commits are measured beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

# In the place of this folder: the names of its scripts are those of other people's modules.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.dispatch import RawCommits  # noqa: E402
from bench.figures import Results  # noqa: E402
from bench.tables import proxy_table  # noqa: E402
from bench.view import View  # noqa: E402

SERVER: Final = [sys.executable, "-S", "-E", str(Path(__file__).with_name("mcp_server.py"))]
LARGE: Final = 100_000


class Client:
    """One request after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout
        self._id = 0

    def ask(self, method: str, params: Any) -> Any:
        """The result of a request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._to.write(json.dumps(message).encode() + b"\n")
        self._to.flush()
        answer = json.loads(self._from.readline())
        assert answer["id"] == self._id, answer
        return answer["result"]

    def call(self, tool: str, text: str) -> None:
        """Call a tool, which says the same again."""
        result = self.ask("tools/call", {"name": tool, "arguments": {"text": text}})
        assert result["content"][0]["text"] == text, result


@contextmanager
def connected(command: Sequence[str]) -> Iterator[Client]:
    """A connection to what the command starts."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        client = Client(process)
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        client.ask("initialize", hello)
        client.ask("tools/list", {})
        yield client


def measure(work: Callable[[int], object], first: int, count: int) -> float:
    """Microseconds that one takes: the median."""
    passed: list[float] = []
    for number in range(first, first + count):
        began = time.perf_counter()
        work(number)
        passed.append((time.perf_counter() - began) * 1e6)
    return statistics.median(passed)


def finish(work: Coroutine[object, None, None]) -> None:
    """Run what never waits, without an event loop."""
    with suppress(StopIteration):
        work.send(None)


def bench(directory: Path, rounds: int, count: int) -> dict[str, list[float]]:
    """Each kind of request, in turns; microseconds, of each round."""
    ledger = f"sqlite:{directory / 'ledger.db'}"
    proxy = [
        sys.executable,
        "-m",
        "holdfast",
        "mcp",
        "proxy",
        "--name",
        "bench",
        "--store",
        ledger,
        "--",
        *SERVER,
    ]
    commit = RawCommits(directory / "raw.db")
    with connected(SERVER) as direct, connected(proxy) as proxied:
        works: dict[str, tuple[Callable[[int], object], int]] = {}
        for where, client in (("directly", direct), ("through the proxy", proxied)):

            def ask(number: int, client: Client = client) -> None:
                client.ask("ping", {})

            def look(number: int, client: Client = client) -> None:
                client.call("look", f"{number}")

            def look_at_much(number: int, client: Client = client) -> None:
                client.call("look", f"{number}" * (LARGE // len(str(number))))

            def act(number: int, client: Client = client) -> None:
                client.call("act", f"{number}")

            works |= {
                f"no tool, {where}": (ask, count),
                f"a tool that reads, {where}": (look, count),
                f"a tool that reads 100 kB, {where}": (look_at_much, count // 4),
                f"a tool that acts, {where}": (act, count // 4),
            }
        works["two raw commits"] = (lambda number: finish(commit(number)), count // 4)
        found: dict[str, list[float]] = {name: [] for name in works}
        names = list(works)
        for turn in range(rounds):
            for name in names:
                work, times = works[name]
                found[name].append(measure(work, turn * times, times))
            names = names[1:] + names[:1]  # Another one begins each round.
    return found


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="short: about 5 s")
    parser.add_argument("--rounds", type=int, help="how often to measure each row (9)")
    parser.add_argument(
        "--directory", type=Path, help="where to write (a new directory in the temporary one)"
    )
    parser.add_argument("--json", type=Path, help="write the time of each round there, too")
    options = parser.parse_args()
    rounds, count = (3, 40) if options.quick else (9, 400)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.directory) as directory:
        measured = bench(Path(directory), options.rounds or rounds, count)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(measured))
    print("\n".join(proxy_table(View(Results(proxy=measured)))))


if __name__ == "__main__":
    main()

"""The proxy as a process of its own, which kills its client, its server or itself at a boundary.

    python watched_proxy.py PLACE TOOL mcp proxy …

PLACE/at has the number of the boundary and whom to kill there: `NUMBER WHO …`. It is gone then. With the word
`stopped` there, the client is stopped at the boundary before, and reads nothing more. PLACE/passed has the
names of the boundaries of the last start, of those of a call of TOOL.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from holdfast.cli import main
from tests.crash.fork_server import poll
from tests.mcp_proxy.warm_proxy import watch


def _kill(process: int, *, with_group: bool = False) -> None:
    """And wait for its end: what is written into a pipe before that counts as delivered."""
    handle = os.pidfd_open(process)
    (os.killpg if with_group else os.kill)(process, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


def _stop(process: int) -> None:
    """And wait until it has stopped."""
    os.kill(process, signal.SIGSTOP)
    poll(lambda: "\nState:\tT" in Path(f"/proc/{process}/status").read_text(), "the client to stop")


def _list_children() -> list[int]:
    found = [one.read_text().split() for one in Path("/proc/self/task").glob("*/children")]
    return [int(child) for children in found for child in children]


def serve(place: Path, tool: str, arguments: list[str]) -> int:
    """Run the proxy; its exit code."""
    at = place / "at"
    number, *whom = at.read_text().split() if at.exists() else ("-1",)
    (place / "passed").unlink(missing_ok=True)

    def on_step(count: int) -> None:
        if count == int(number) - 1 and "stopped" in whom:
            _stop(os.getppid())
        if count != int(number):
            return
        at.unlink()
        if "server" in whom:
            for child in _list_children():
                _kill(child, with_group=True)
        if "client" in whom:
            _kill(os.getppid())
        if "proxy" in whom:
            os.kill(os.getpid(), signal.SIGKILL)

    watch(place / "passed", (f'"{tool}"'.encode(), b'"content"', b"holdfast/status"), on_step)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))

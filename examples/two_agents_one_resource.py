"""Two agents, one file: `session.hold` lets one of them in at a time, and numbers those who were in.

    python examples/two_agents_one_resource.py [STORE]

The two could be two processes, started on the same store: the hold would be the same one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

import holdfast


class Report:
    """A file that refuses a writer who is behind the times: it remembers the highest fence it has seen."""

    def __init__(self, path: Path) -> None:
        self._path, self._fence = path, 0
        path.write_text("")

    def append(self, line: str, *, fence: int) -> None:
        """Add a line."""
        if fence < self._fence:
            raise RuntimeError(f"fence {fence} is older than {self._fence}")
        self._fence = fence
        self._path.write_text(self._path.read_text() + line + "\n")

    def lines(self) -> list[str]:
        """What is in it."""
        return self._path.read_text().splitlines()


async def work(store: holdfast.Store, name: str, report: Report) -> None:
    """Write three paragraphs, each of two lines that belong together."""
    async with store.session(name) as session, session.run(agent=name):
        for number in range(1, 4):
            await anyio.sleep(0.15)  # thinking
            async with session.hold("report.txt", wait_s=30) as held:
                report.append(f"{name}, paragraph {number}, begins", fence=held.fence)
                await anyio.sleep(0.01)
                await held.check()  # still ours? a holder that was away for too long is told here
                report.append(f"{name}, paragraph {number}, ends", fence=held.fence)
            await session.add(f"Paragraph {number} is written.")
            await session.checkpoint()


async def main(url: str) -> None:
    """Both at once; the paragraphs never mix."""
    with tempfile.TemporaryDirectory() as folder:
        report = Report(Path(folder) / "report.txt")
        async with holdfast.open_store(url) as store, anyio.create_task_group() as tasks:
            tasks.start_soon(work, store, "alice", report)
            tasks.start_soon(work, store, "bob", report)
        lines = report.lines()
        print("\n".join(lines))
        whole = all(
            first.replace("begins", "ends") == second
            for first, second in zip(lines[::2], lines[1::2], strict=True)
        )
        print(f"{len(lines) // 2} paragraphs, {'none of them torn' if whole else 'TORN'}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "memory:")

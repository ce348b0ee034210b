"""Run the tests on a busy machine: every processor is loaded by children of this script, for as long.

    python -m tests.busy [TIMES] [pytest's arguments …]

By default three times what `make test` runs. The children are ended by their process ids when the tests end,
and end by themselves if this script is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess

HOURS_MAX = 6.0
"""No child lives longer, whatever happens."""


def burn(parent: int) -> None:
    """Keep a processor busy until the parent is gone."""
    until_s = time.monotonic() + HOURS_MAX * 3600
    while os.getppid() == parent and time.monotonic() < until_s:
        sum(range(1_000_000))


def start_load(count: int) -> list[BaseProcess]:
    """Start that many children that keep a processor busy each."""
    context = multiprocessing.get_context("spawn")
    children: list[BaseProcess] = [
        context.Process(target=burn, args=(os.getpid(),), daemon=True) for _ in range(count)
    ]
    for child in children:
        child.start()
    return children


def main(arguments: list[str]) -> int:
    """Run the tests under load; the first exit code that is not 0, else 0."""
    times = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 3
    processors = os.cpu_count() or 1
    chosen = arguments or ["-m", "not long", "-n", str(2 * processors), "--dist", "worksteal"]
    # Two on each processor: a test gets a third of one, or less.
    children = start_load(2 * processors)
    try:
        for turn in range(times):
            print(f"run {turn + 1} of {times}, beside {len(children)} busy processes", flush=True)
            code = subprocess.run([sys.executable, "-m", "pytest", *chosen]).returncode
            if code:
                return code
        return 0
    finally:
        for child in children:
            child.kill()
            child.join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

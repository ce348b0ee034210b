"""What there is to pay around the steps: starting, and holding sessions open."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.figures import Memory, Results, Size, Timed
from bench.runner import ROOT, Failed, Runner, arguments, run_child
from bench.subjects.catalogue import Subject

OPENING_S = 120

STARTS: Final = {
    "python": ["-c", "pass"],
    "import holdfast": ["-c", "import holdfast"],
    "import holdfast, open_store, Agent": ["-c", "from holdfast import Agent, open_store"],
    "holdfast --help": ["-m", "holdfast", "--help"],
    "import langgraph.graph": ["-c", "import langgraph.graph"],
    "import pydantic_ai": ["-c", "import pydantic_ai"],
    "import agents (OpenAI)": ["-c", "import agents"],
    "import strands": ["-c", "import strands"],
    "import dbos": ["-c", "import dbos"],
}

HELD: Final = (
    "holdfast dir",
    "holdfast SQLite",
    "holdfast PostgreSQL",
    "OpenAI SQLiteSession",
    "OpenAI SQLAlchemySession",
    "strands FileSessionManager",
    "DBOS SQLite",
)


def measure_startup(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """Whole interpreters, in turns."""
    found: dict[str, Timed] = {}
    # Once unmeasured: bytecode is compiled, and files are in the page cache.
    for turn in range(runner.plan.starts + 1):
        for what, command in STARTS.items():
            if turn > 0 and what not in found:
                continue
            try:
                wall_ms, cpu_ms = _start([sys.executable, *command])
            except Failed as failure:
                note(f"{what}: {failure}")
                found.pop(what, None)
                continue
            timed = found.setdefault(what, Timed(what, [], []))
            if turn > 0:
                timed.wall_ms.append(wall_ms)
                timed.cpu_ms.append(cpu_ms)
    results.startup += found.values()


def _start(command: Sequence[str]) -> tuple[float, float]:
    """Milliseconds that passed, and that processors worked."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    passed = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"ended with status {process.returncode}")
    return passed * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def measure_memory(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """What many open sessions take beyond one, in turns."""
    held = HELD[:4] if runner.plan.quick else HELD
    subjects = [one for one in runner.subjects if one.name in held]
    for _ in range(runner.plan.held_rounds):
        for subject in list(subjects):
            try:
                few, many = (_hold(runner, subject, sessions) for sessions in (1, runner.plan.held))
            except Failed as failure:
                note(f"{subject.name}: {failure}")
                subjects.remove(subject)
                continue
            results.memory.append(Memory(subject.name, (many - few) / (runner.plan.held - 1)))


def _hold(runner: Runner, subject: Subject, sessions: int) -> int:
    """Bytes that the process has more."""
    with runner.place(subject) as place:
        with run_child(arguments("hold", subject, place, sessions=sessions), OPENING_S) as child:
            return child.hear(Size).bytes

"""What a step costs as a session grows, what loading it costs, and how often a step waits for the disk."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median

import msgspec

from bench.figures import Growth, Mark, Rate, Ready, Results, Stop, Syncs
from bench.plan import Plan
from bench.runner import ROOT, Child, Failed, Runner, arguments, run_child
from bench.subjects.catalogue import AGENTS, GRAPHS, GROUPS, MESSAGES, RUNS, Subject
from bench.subjects.contract import Place

OPENING_S = 60
"""To import, to open and to load, beside the steps."""

SYNCS = r"\b(?:fsync|fdatasync|msync)\("


class Growing:
    """A subject whose session grows, and what was measured of it."""

    def __init__(self, subject: Subject, place: Place, plan: Plan, opened: ExitStack) -> None:
        def start(what: str) -> Child:
            return opened.enter_context(run_child(arguments(what, subject, place), plan.hard_s + OPENING_S))

        self.subject, self._place, self._plan = subject, place, plan
        self._writer = start("grow")
        # In a process of its own, which has none of what the writer remembers.
        self._reader = start("read") if subject.store else None
        self._peeks = subject.role == "holdfast" and subject.group == MESSAGES
        self._step_ms: list[float] = []
        self._loads: dict[str, list[float]] = {}
        self.found = Growth(subject=subject.name, round_steps=plan.round_steps)

    def wait(self) -> None:
        """Until it is open."""
        for child in filter(None, (self._writer, self._reader)):
            child.hear(Ready)

    def check(self, mark: int) -> Stop | None:
        """Why it should not go on to the next mark."""
        spent_s, steps = sum(self._step_ms) / 1000, len(self._step_ms)
        if spent_s > self._plan.soft_s:
            return Stop(steps, f"{self._plan.soft_s:g} s were over")
        if estimate_ms(self._step_ms, mark) / 1000 > self._plan.hard_s:
            return Stop(steps, f"{mark:,} steps would take more than {self._plan.hard_s:g} s")
        return None

    def take_round(self) -> Stop | None:
        """The next steps; why it should not take more."""
        times = self._writer.ask("step", self._plan.round_steps)
        self._step_ms += times
        self.found.rounds_ms.append(fmean(times))
        if sum(self._step_ms) / 1000 > self._plan.hard_s:
            return Stop(len(self._step_ms), f"{self._plan.hard_s:g} s were over")
        return None

    def load(self) -> None:
        """Once in each way."""
        if self._reader is None:
            return
        steps = len(self._step_ms)

        def note(figure: str, took: float) -> None:
            self._loads.setdefault(figure, []).append(took)

        opening, loading = self._reader.ask("load", steps)
        note("new_open_ms", opening)
        note("new_load_ms", loading)
        note("load_ms", self._writer.ask("load", steps)[0])
        if self._peeks:
            note("new_peek_ms", sum(self._reader.ask("peek", steps)))
            note("peek_ms", self._writer.ask("peek", steps)[0])

    def end_mark(self) -> None:
        """Put together what there is of the session at a mark."""
        times = self._step_ms
        share = _share(len(times))
        # The first load is not counted: what is imported on its way is, from then on.
        loads: dict[str, list[float]] = {"load_ms": [], "new_open_ms": [], "new_load_ms": []} | {
            figure: found[1:] for figure, found in self._loads.items()
        }
        self._loads.clear()
        self.found.marks.append(
            Mark(
                steps=len(times),
                first_ms=median(times[:share]),
                last_ms=median(times[-share:]),
                total_s=sum(times) / 1000,
                disk_bytes=measure_disk(self._place),
                **loads,
            )
        )


def estimate_ms(step_ms: Sequence[float], mark: int) -> float:
    """How long so many steps take in all, if their time goes on growing by the power it grew by so far."""
    half, whole = sum(step_ms[: len(step_ms) // 2]), sum(step_ms)
    if not half:
        return 0.0
    # The total grows at least in proportion; what the first steps take more says nothing about the rest.
    power = max(1.0, math.log2(whole / half))
    return whole * math.pow(mark / len(step_ms), power)


def _share(steps: int) -> int:
    """5 %."""
    return max(1, steps // 20)


def measure_disk(place: Place) -> int:
    """Bytes of files, or of a database."""
    command = [sys.executable, "-m", "bench.disk", str(place.directory), place.postgres]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def measure_growth(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """The subjects of a table are open at the same time, and take rounds of steps in turns."""
    whole = dict.fromkeys((AGENTS, RUNS), runner.plan.agent_marks)
    chosen = {MESSAGES: runner.plan.message_marks, **whole}
    for group in GROUPS:
        subjects = [one for one in runner.subjects if one.group == group]
        marks = chosen.get(group, runner.plan.marks)
        with ExitStack() as opened:
            results.growth += _grow(runner, subjects, marks, note, opened)


def _grow(
    runner: Runner,
    subjects: Sequence[Subject],
    marks: Sequence[int],
    note: Callable[[str], None],
    opened: ExitStack,
) -> list[Growth]:
    growing: list[Growing] = []

    def each(work: Callable[[Growing], Stop | None]) -> None:
        """Let each take its turn, and leave out those that stop."""
        for one in list(growing):
            try:
                stop = work(one)
            except Failed as failure:
                stop = Stop(len(one.found.rounds_ms) * runner.plan.round_steps, str(failure))
                note(f"{one.subject.name}: {failure}")
            if stop is not None:
                growing.remove(one)
                one.found = msgspec.structs.replace(one.found, stop=stop)

    for subject in subjects:
        try:
            place = opened.enter_context(runner.place(subject))
            growing.append(Growing(subject, place, runner.plan, opened))
        except Failed as failure:
            note(f"{subject.name}: {failure}")
    all_of_them = list(growing)
    each(Growing.wait)
    done = 0
    for mark in marks:
        each(lambda one: one.check(mark))  # noqa: B023
        for _ in range(done, mark, runner.plan.round_steps):
            each(Growing.take_round)
            growing[:] = growing[1:] + growing[:1]  # Another one begins each round.
        for _ in range(runner.plan.loads + 1):
            each(Growing.load)
        each(Growing.end_mark)
        done = mark
    return [one.found for one in all_of_them if one.found.rounds_ms]


def count_syncs(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """By strace, in short runs of their own: nothing is timed, so two run at once."""
    if shutil.which("strace") is None:
        note("strace is not installed")
        return

    def count_all(subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            try:
                results.syncs.append(_count(runner, subject))
            except Failed as failure:
                note(f"{subject.name}: {failure}")

    subjects = runner.subjects
    if runner.plan.quick:
        # What frameworks do around a store does not sync.
        subjects = tuple(one for one in subjects if one.group not in {GRAPHS, AGENTS, RUNS})
    # All on the server in one line: they are counted there.
    there = [one for one in subjects if one.store == "PostgreSQL"]
    here = [one for one in subjects if one.store != "PostgreSQL"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count_all, (here, there)))


def _count(runner: Runner, subject: Subject) -> Syncs:
    with runner.place(subject) as place:
        report = place.directory.with_suffix(".trace")
        trace = ["strace", "-f", "-e", "trace=fsync,fdatasync,msync", "-o", str(report)]
        given = arguments("take", subject, place)
        try:
            if subject.store == "PostgreSQL":
                assert runner.server is not None
                if runner.server.pid is None:
                    raise Failed("the server is not ours to trace")
                with _attached([*trace, "-p", str(runner.server.pid)]):
                    return _take(runner, subject, given, report, under=())
            return _take(runner, subject, given, report, under=[*trace, "--seccomp-bpf"])
        finally:
            report.unlink(missing_ok=True)


@contextmanager
def _attached(command: Sequence[str]) -> Iterator[None]:
    """A tracer of the server: of whom it starts from now on."""
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        if "attached" not in said:
            raise Failed(said.strip())
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def _take(
    runner: Runner, subject: Subject, given: Sequence[str], report: Path, under: Sequence[str]
) -> Syncs:
    with run_child(given, OPENING_S, under=under) as child:
        child.hear(Ready)
        before = _count_in(report)
        child.tell("take", runner.plan.syncs_s)
        said = child.hear(Rate)
        after = _count_in(report)
    return Syncs(subject.name, said.steps, after - before)


def _count_in(report: Path) -> int:
    return len(re.findall(SYNCS, report.read_text())) if report.exists() else 0

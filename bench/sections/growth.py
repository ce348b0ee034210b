"""What a step costs as a session grows, and how often it waits for the disk."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Growth, Mark, Rate, Results, Stop, Syncs
from bench.runner import Failed, Runner, arguments, run_child
from bench.subjects.catalogue import AGENTS, GRAPHS, Subject

OPENING_S = 60
"""To import, to open and to close, beside the steps; loading and looking at the disk included."""

SYNCS = r"\b(?:fsync|fdatasync|msync)\("


def measure_growth(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """Every subject once, then every subject again: a noisy minute does not hit one row alone."""
    failed: set[str] = set()
    for turn in range(runner.plan.rounds):
        for subject in runner.subjects:
            if subject.name in failed:
                continue
            try:
                results.growth.append(_grow(runner, subject, first=turn == 0))
            except Failed as failure:
                failed.add(subject.name)
                note(f"{subject.name}: {failure}")


def _grow(runner: Runner, subject: Subject, *, first: bool) -> Growth:
    plan = runner.plan
    soft_s, hard_s = (plan.soft_s, plan.hard_s) if first else (plan.later_s, plan.later_s)
    marks: list[Mark] = []
    stop: Stop | None = None
    with runner.place(subject) as place:
        given = arguments("grow", subject, place, marks=plan.marks, limits=(soft_s, hard_s))
        with run_child(given, hard_s + OPENING_S) as child:
            try:
                for said in child.hear_all():
                    if isinstance(said, Mark):
                        marks.append(said)
                    elif isinstance(said, Stop):
                        stop = said
            except Failed as failure:
                # What it reached before counts.
                if not marks:
                    raise
                stop = Stop(marks[-1].steps, str(failure))
    return Growth(subject.name, marks, stop)


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
        subjects = tuple(one for one in subjects if one.group not in {GRAPHS, AGENTS})
    # All on the server in one line: they are counted there.
    there = [one for one in subjects if one.store == "PostgreSQL"]
    here = [one for one in subjects if one.store != "PostgreSQL"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count_all, (here, there)))


def _count(runner: Runner, subject: Subject) -> Syncs:
    with runner.place(subject) as place:
        report = place.directory.with_suffix(".trace")
        trace = ["strace", "-f", "-e", "trace=fsync,fdatasync,msync", "-o", str(report)]
        given = arguments("take", subject, place, seconds=runner.plan.syncs_s)
        try:
            if subject.store == "PostgreSQL":
                assert runner.server is not None
                if runner.server.pid is None:
                    raise Failed("the server is not ours to trace")
                with _attached([*trace, "-p", str(runner.server.pid)]):
                    return _take(subject, given, report, under=())
            return _take(subject, given, report, under=[*trace, "--seccomp-bpf"])
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


def _take(subject: Subject, given: Sequence[str], report: Path, under: Sequence[str]) -> Syncs:
    with run_child(given, OPENING_S, under=under) as child:
        child.hear()
        before = _count_in(report)
        child.tell()
        said = child.hear()
        after = _count_in(report)
        child.tell()
        child.expect_end()
    assert isinstance(said, Rate)
    return Syncs(subject.name, said.steps, after - before)


def _count_in(report: Path) -> int:
    return len(re.findall(SYNCS, report.read_text())) if report.exists() else 0

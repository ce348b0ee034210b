"""How many durable steps a second many sessions take at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from bench.figures import Rate, Results, Throughput
from bench.runner import Failed, Runner, arguments, run_child
from bench.subjects.catalogue import Subject

OPENING_S = 60
"""To import, and to open and close a thousand sessions."""
FILES_MAX = 100
"""Sessions at once of a store that syncs a file for each: more of them only wait."""


class Case(NamedTuple):
    """A row."""

    subject: Subject
    sessions: int
    processes: int = 1
    batch: bool = False


def measure_throughput(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """All rows in turns."""
    plan = runner.plan
    cases = choose_cases(runner)
    failed: set[Case] = set()
    for turn in range(plan.rounds):
        for case in cases:
            if case in failed or (case.subject.role == "peer" and turn >= plan.peer_rounds):
                continue
            try:
                rate = _measure(runner, case)
            except Failed as failure:
                failed.add(case)
                note(f"{case.subject.name}, {case.sessions:,} sessions: {failure}")
                continue
            results.throughput.append(
                Throughput(case.subject.name, case.sessions, case.processes, case.batch, rate)
            )


def choose_cases(runner: Runner) -> list[Case]:
    """Whoever can; the floor in batches of as many steps as there are sessions."""
    plan, cases = runner.plan, list[Case]()
    for subject in runner.subjects:
        if not subject.many:
            continue
        floor = subject.role == "floor"
        sizes = plan.peer_sessions if subject.role == "peer" else plan.sessions
        sizes = tuple(size for size in sizes if subject.store != "files" or size <= FILES_MAX)
        cases += [Case(subject, size, batch=floor and size > 1) for size in sizes]
        if subject.name == "holdfast SQLite":
            cases.append(Case(subject, plan.processes, plan.processes))
    return cases


def _measure(runner: Runner, case: Case) -> float:
    """Steps a second."""
    plan = runner.plan
    with runner.place(case.subject) as place, ExitStack() as opened:
        given = arguments(
            "take",
            case.subject,
            place,
            sessions=case.sessions // case.processes,
            seconds=plan.seconds,
            batch=case.batch,
        )
        limit_s = plan.seconds + OPENING_S
        children = [opened.enter_context(run_child(given, limit_s)) for _ in range(case.processes)]
        for child in children:
            child.hear()
        for child in children:
            child.tell()
        said = [child.hear() for child in children]
        # Closing is not waited for: some take their time, and nothing of it is measured.
        return sum(one.steps / one.seconds for one in said if isinstance(one, Rate))

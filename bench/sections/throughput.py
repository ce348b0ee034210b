"""How many durable steps a second many sessions take at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from bench.figures import Rate, Ready, Results, Throughput
from bench.runner import Child, Failed, Runner, arguments, run_child
from bench.subjects.catalogue import Subject

LIMIT_S = 120
"""To import and to open a thousand sessions; or to take one step in each of them."""
FILES_MAX = 100
"""Sessions at once of a store that syncs a file for each: more of them only wait."""


class Case(NamedTuple):
    """A cell of the table."""

    subject: Subject
    sessions: int
    processes: int = 1
    batch: bool = False


def measure_throughput(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """All subjects with as many sessions are open at the same time, and take turns."""
    cases = choose_cases(runner)
    for key in dict.fromkeys((one.processes, one.sessions) for one in cases):
        with ExitStack() as opened:
            _take_turns(
                runner, [one for one in cases if (one.processes, one.sessions) == key], results, note, opened
            )


def choose_cases(runner: Runner) -> list[Case]:
    """Those that can; the floor in batches of as many steps as there are sessions."""
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


def _take_turns(
    runner: Runner, cases: list[Case], results: Results, note: Callable[[str], None], opened: ExitStack
) -> None:
    plan = runner.plan
    running: dict[Case, list[Child]] = {}
    rates: dict[Case, list[float]] = {}

    def drop(case: Case, failure: Failed) -> None:
        running.pop(case, None)
        note(f"{case.subject.name}, {case.sessions:,} sessions: {failure}")

    for case in cases:
        try:
            running[case] = _start(runner, case, opened)
        except Failed as failure:
            drop(case, failure)
    for turn in range(plan.rounds):
        for case, children in list(running.items()):
            if case.subject.role == "peer" and turn >= plan.peer_rounds:
                continue
            try:
                rates.setdefault(case, []).append(_measure(children, plan.seconds))
            except Failed as failure:
                drop(case, failure)
    for case, found in rates.items():
        if found:
            results.throughput.append(
                Throughput(case.subject.name, case.sessions, case.processes, case.batch, found)
            )


def _start(runner: Runner, case: Case, opened: ExitStack) -> list[Child]:
    """Ready to take steps. They are not closed in the end: some take their time for that."""
    place = opened.enter_context(runner.place(case.subject))
    children = [
        opened.enter_context(
            run_child(
                arguments(
                    "take",
                    case.subject,
                    place._replace(prefix=f"p{number}-"),
                    sessions=case.sessions // case.processes,
                    batch=case.batch,
                ),
                LIMIT_S,
            )
        )
        for number in range(case.processes)
    ]
    for child in children:
        child.hear(Ready)
    return children


def _measure(children: list[Child], seconds: float) -> float:
    """Steps a second, all processes at once."""
    for child in children:
        child.tell("take", seconds)
    return sum(one.steps / one.seconds for one in [child.hear(Rate) for child in children])

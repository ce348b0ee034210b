"""A subject is measured in a process of its own, which says how far it came."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.figures import Mark, Ready, Results, Stop
from bench.plan import QUICK
from bench.runner import ROOT, Failed, Runner, arguments, run_child
from bench.sections.growth import measure_growth
from bench.sections.throughput import measure_throughput
from bench.sections.turns import measure_turns
from bench.subjects.catalogue import GROUPS, SUBJECTS, get_subject
from bench.subjects.contract import Place
from bench.view import counterpart

SMALL = msgspec.structs.replace(
    QUICK, marks=(2, 4), sessions=(1, 3), seconds=0.05, processes=2, turn_rounds=1, turn_steps=3
)


@pytest.fixture
def runner(quick_path: Path) -> Runner:
    chosen = ("raw SQLite", "raw PostgreSQL", "holdfast SQLite")
    return Runner(SMALL, quick_path, None, tuple(map(get_subject, chosen)))


def test_a_growing_session_is_looked_at_as_it_passes_its_marks(runner: Runner) -> None:
    """Holdfast as well as the floor; what cannot be measured is noted, and the others go on."""
    results, problems = Results(), list[str]()
    measure_growth(runner, results, problems.append)
    found = {one.subject: one.marks for one in results.growth}
    assert list(found) == ["raw SQLite", "holdfast SQLite"]
    assert problems == ["raw PostgreSQL: no PostgreSQL"]
    for marks in found.values():
        assert [mark.steps for mark in marks] == [2, 4]
        assert marks[0].total_s < marks[1].total_s
        assert marks[1].disk_bytes >= 4 * 2000
    assert list(runner.directory.iterdir()) == []


@pytest.mark.parametrize("script", ["growth.py", "concurrency.py"])
def test_a_part_can_be_measured_by_itself(script: str, quick_path: Path) -> None:
    """From any directory; what is measured is printed."""
    command = [sys.executable, str(ROOT / "bench" / script), "--quick", "--subjects", "nobody"]
    printed = subprocess.run(command, cwd=quick_path, capture_output=True, text=True, check=True).stdout
    assert "# Results" in printed
    assert "throughput:" in printed or "long sessions:" in printed


def test_a_session_stops_at_its_limit_and_says_so(quick_path: Path) -> None:
    """No mark is begun when the time is over."""
    given = arguments("grow", get_subject("raw append"), Place(quick_path, ""), marks=(2, 4), limits=(0, 9))
    with run_child(given, 60) as child:
        said = list(child.hear_all())
    assert [type(one) for one in said] == [Mark, Stop]
    assert said[1] == Stop(2, "0 s were over")


def test_a_measurement_that_hangs_is_ended(quick_path: Path) -> None:
    """It waits for the word, which does not come."""
    given = arguments("take", get_subject("raw append"), Place(quick_path, ""))
    with run_child(given, 5) as child:
        assert child.hear() == Ready()
        with pytest.raises(Failed, match="ended after 5 s"):
            child.hear()


def test_sessions_take_steps_at_once_in_one_process_and_in_several(runner: Runner) -> None:
    """The floor in batches of as many steps."""
    chosen = msgspec.structs.replace(
        runner, subjects=(get_subject("raw SQLite"), get_subject("holdfast SQLite"))
    )
    results, problems = Results(), list[str]()
    measure_throughput(chosen, results, problems.append)
    assert problems == []
    assert [(one.subject, one.sessions, one.processes, one.batch) for one in results.throughput] == [
        ("raw SQLite", 1, 1, False),
        ("raw SQLite", 3, 1, True),
        ("holdfast SQLite", 1, 1, False),
        ("holdfast SQLite", 3, 1, False),
        ("holdfast SQLite", 2, 2, False),
    ]
    assert all(one.rate > 0 for one in results.throughput)


def test_subjects_take_steps_in_turns(quick_path: Path) -> None:
    """Each set of which all are asked for."""
    chosen = Runner(SMALL, quick_path, None, (get_subject("raw append"), get_subject("holdfast dir")))
    results, problems = Results(), list[str]()
    measure_turns(chosen, results, problems.append)
    assert problems == []
    assert [set(one.medians_ms) for one in results.turns] == [{"raw append", "holdfast dir"}]


def test_every_peer_is_compared_with_one_of_ours() -> None:
    """In the same group; and no name is there twice."""
    assert len({one.name for one in SUBJECTS}) == len(SUBJECTS)
    assert {one.group for one in SUBJECTS} == set(GROUPS)
    for one in SUBJECTS:
        assert one.role != "peer" or counterpart(one) is not None, one.name

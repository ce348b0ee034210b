"""A subject is measured in a process of its own, which says how far it came."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from bench.figures import Ready, Results, Stop, Table
from bench.plan import QUICK
from bench.runner import ROOT, Failed, Runner, arguments, run_child
from bench.sections.growth import Growing, estimate_ms, measure_growth
from bench.sections.throughput import measure_throughput
from bench.sections.turns import measure_turns
from bench.subjects.catalogue import GROUPS, SUBJECTS, get_subject
from bench.subjects.contract import Place
from bench.view import counterpart

SMALL = msgspec.structs.replace(
    QUICK,
    message_marks=(2, 4),
    round_steps=1,
    loads=2,
    sessions=(1, 3),
    seconds=0.05,
    rounds=2,
    processes=2,
    turn_rounds=1,
    turn_steps=3,
)


@pytest.fixture
def runner(quick_path: Path) -> Runner:
    chosen = ("raw SQLite", "raw PostgreSQL", "holdfast SQLite")
    return Runner(SMALL, quick_path, None, tuple(map(get_subject, chosen)))


def test_a_growing_session_is_looked_at_as_it_passes_its_marks(runner: Runner) -> None:
    """Holdfast as well as the floor; what cannot be measured is noted, and the others go on."""
    results, problems = Results(), list[str]()
    measure_growth(runner, results, problems.append)
    found = {one.subject: one for one in results.growth}
    assert list(found) == ["raw SQLite", "holdfast SQLite"]
    assert problems == ["raw PostgreSQL: no PostgreSQL"]
    for name, one in found.items():
        assert one.stop is None
        assert len(one.rounds_ms) == 4
        assert [mark.steps for mark in one.marks] == [2, 4]
        first, last = one.marks
        assert first.total_s < last.total_s
        assert last.disk_bytes >= 4 * 2000
        assert len(last.load_ms) == len(last.new_ms) == 2
        assert len(last.peek_ms) == len(last.new_peek_ms) == (2 if name == "holdfast SQLite" else 0)
    assert list(runner.directory.iterdir()) == []


@pytest.mark.parametrize("script", ["growth.py", "concurrency.py"])
def test_a_part_can_be_measured_by_itself(script: str, quick_path: Path) -> None:
    """From any directory; what is measured is printed."""
    command = [sys.executable, str(ROOT / "bench" / script), "--quick", "--subjects", "nobody"]
    printed = subprocess.run(command, cwd=quick_path, capture_output=True, text=True, check=True).stdout
    assert "# Results" in printed
    assert "syncs:" in printed


@pytest.mark.long
def test_sessions_and_runs_of_the_agents_sdk_are_measured_beside_its_own(runner: Runner) -> None:
    """What is kept is what is loaded; a run that keeps nothing is the floor."""
    names = ("HoldfastSession SQLite", "OpenAI SQLiteSession", "run, nothing kept", "run, SQLiteSession",
             "run, DurableRunner", "run, DurableRunner, mutating tool", "streamed run, nothing kept",
             "streamed run, DurableRunner")  # fmt: skip
    plan = msgspec.structs.replace(SMALL, agent_marks=(2, 4))
    chosen = msgspec.structs.replace(runner, plan=plan, subjects=tuple(map(get_subject, names)))
    results, problems = Results(), list[str]()
    measure_growth(chosen, results, problems.append)
    assert problems == []
    assert {one.subject: [mark.steps for mark in one.marks] for one in results.growth} == {
        name: [2, 4] for name in names
    }
    for one in results.growth:
        assert one.stop is None
        kept = get_subject(one.subject).store != ""
        assert (one.marks[-1].disk_bytes > 4 * 2000) is kept
        assert len(one.marks[-1].load_ms) == 2 * kept
        assert len(one.marks[-1].peek_ms) == 2 * (one.subject == "HoldfastSession SQLite")


def test_requests_are_measured_directly_and_through_the_proxy(quick_path: Path) -> None:
    """A server answers the same both ways; each kind of request has a figure of each round."""
    figures = quick_path / "figures.json"
    command = [sys.executable, str(ROOT / "bench" / "proxy.py"), "--quick", "--rounds", "2"]
    command += ["--json", str(figures), "--directory", str(quick_path)]
    printed = subprocess.run(command, cwd=quick_path, capture_output=True, text=True, check=True).stdout
    found = msgspec.json.decode(figures.read_bytes(), type=dict[str, list[float]])
    assert {len(times) for times in found.values()} == {2}
    assert {name.partition(", ")[0] for name in found if name.endswith("through the proxy")} == {
        "no tool",
        "a tool that reads",
        "a tool that reads 100 kB",
        "a tool that acts",
    }
    assert "| a tool that acts |" in printed


def test_the_viewer_is_asked_for_pages_while_another_process_writes(quick_path: Path) -> None:
    """Every figure of the table is measured."""
    figures = quick_path / "figures.json"
    command = [sys.executable, str(ROOT / "bench" / "viewer.py"), "--quick", "--directory", str(quick_path)]
    command += ["--json", str(figures)]
    printed = subprocess.run(command, cwd=quick_path, capture_output=True, text=True, check=True).stdout
    found = msgspec.json.decode(figures.read_bytes(), type=dict[str, list[float]])
    assert len(found) == 10
    assert all(len(times) == 1 and times[0] > 0 for times in found.values())
    assert "–" not in printed


def test_a_crash_test_is_timed(quick_path: Path) -> None:
    """Its agent has 300 boundaries, of which the quick form tries some; nothing is found."""
    figures = quick_path / "figures.json"
    command = [sys.executable, str(ROOT / "bench" / "crash_tests.py"), "--quick", "--json", str(figures)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    subprocess.run(command, cwd=quick_path, env=environment, capture_output=True, text=True, check=True)
    table = msgspec.json.decode(figures.read_bytes(), type=Table)
    (row,) = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert int(row["boundaries"]) >= 300
    assert (row["killed at"], row["runs"], row["findings"]) == ("20", "40", "0")
    assert float(row["seconds"]) > 0


def test_a_session_stops_at_its_limit_and_says_so(runner: Runner) -> None:
    """No mark is begun when the time is over; what was reached counts."""
    plan = msgspec.structs.replace(SMALL, soft_s=0)
    chosen = msgspec.structs.replace(runner, plan=plan, subjects=(get_subject("raw append"),))
    results, problems = Results(), list[str]()
    measure_growth(chosen, results, problems.append)
    (found,) = results.growth
    assert [mark.steps for mark in found.marks] == [2]
    assert found.stop == Stop(2, "0 s were over")
    assert problems == []


@pytest.mark.parametrize(("power", "in_time"), [(1.0, True), (2.0, False)])
def test_a_session_that_would_not_reach_its_mark_in_time_is_not_sent_there(
    power: float, in_time: bool
) -> None:
    """Its time goes on growing as it did: from 100 steps to 1,000, tenfold or a hundredfold."""
    totals = [1000 * (steps / 100) ** power for steps in range(101)]
    step_ms = [after - before for before, after in pairwise(totals)]
    assert estimate_ms(step_ms, 1000) == pytest.approx(1000 * 10**power)
    assert (estimate_ms(step_ms, 1000) / 1000 < 20) is in_time
    # What the first steps take more is no reason to expect less of the others.
    assert estimate_ms([500.0, *step_ms], 1000) >= 1500 * 1000 / 101
    assert estimate_ms([], 1000) == 0


def test_a_subject_that_fails_leaves_the_others_alone(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noted, and what it reached before counts."""
    take_round = Growing.take_round

    def fail(growing: Growing) -> Stop | None:
        if growing.subject.name == "raw SQLite" and len(growing.found.rounds_ms) == 3:
            raise Failed("out of order")
        return take_round(growing)

    monkeypatch.setattr(Growing, "take_round", fail)
    results, problems = Results(), list[str]()
    measure_growth(runner, results, problems.append)
    failed, other = results.growth
    assert ([mark.steps for mark in failed.marks], failed.stop) == ([2], Stop(3, "out of order"))
    assert [mark.steps for mark in other.marks] == [2, 4]
    assert "raw SQLite: out of order" in problems


def test_a_measurement_that_hangs_is_ended(quick_path: Path) -> None:
    """It waits for its next word, which does not come."""
    given = arguments("take", get_subject("raw append"), Place(quick_path, ""))
    with run_child(given, 5) as child:
        assert child.hear(Ready) == Ready()
        with pytest.raises(Failed, match="ended after 5 s"):
            child.hear(Ready)


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
        ("holdfast SQLite", 1, 1, False),
        ("raw SQLite", 3, 1, True),
        ("holdfast SQLite", 3, 1, False),
        ("holdfast SQLite", 2, 2, False),
    ]
    assert all(len(one.rates) == 2 and min(one.rates) > 0 for one in results.throughput)


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

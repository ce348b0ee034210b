"""The page of the benchmarks says what the figures say, whoever is ahead."""

from pathlib import Path

import msgspec
import pytest

from bench.better import list_better
from bench.figures import Results, Section, Spread, Turns, exponent
from bench.page import page_lines
from bench.verdicts import judge
from bench.view import View
from tests.bench.example_figures import grown, make_results


@pytest.fixture
def page() -> str:
    return "\n".join(page_lines(make_results(), ["overview"]))


@pytest.mark.parametrize("power", [0.0, 1.0, 1.9, 3.0])
def test_an_exponent_is_the_power_that_the_figures_grow_by(power: float) -> None:
    """Whatever the unit."""
    points = [(steps, 0.7 * steps**power) for steps in (100, 300, 1000, 3000)]
    assert exponent(points) == pytest.approx(power)


def test_one_point_has_no_exponent() -> None:
    """Nor have several at the same place."""
    assert exponent([(100, 1.0)]) is None
    assert exponent([(100, 1.0), (100, 2.0)]) is None


def test_a_figure_comes_with_its_median_and_its_spread(page: str) -> None:
    """Of all rounds: 0.4 ms, and 10 % and 20 % more."""
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    row = next(line for line in page.splitlines() if line.startswith("| **holdfast SQLite**"))
    assert "0.440 (0.400–0.480)" in row


def test_headlines_are_ratios_at_the_most_steps_that_both_reached(page: str) -> None:
    """The peer was stopped after 1,000."""
    headline = next(
        line for line in page.splitlines() if line.startswith("| HoldfastStepStore | SqliteStepStore")
    )
    assert headline.split(" | ")[2:4] == ["1,000", "106"]
    assert "SqliteStepStore stopped at step 1,234: 50 s were over." in page


def test_a_step_is_compared_with_the_floor_turn_by_turn(page: str) -> None:
    """Ratios of one moment each, and their median."""
    assert "| holdfast SQLite | raw SQLite | 1.30 (1.20–1.40) |" in page


def test_a_peer_that_is_better_is_named() -> None:
    """With its figure; one that is not, is not."""
    lines = list_better(View(make_results()))
    (smaller,) = [line for line in lines if line.startswith("**OpenAI SQLiteSession**")]
    assert "takes 1.43 times fewer bytes after 3,000 steps" in smaller
    assert "less time" not in smaller
    assert not any("SqliteStepStore" in line for line in lines)


def test_nobody_is_named_who_is_not_better() -> None:
    """And the page says so."""
    results = Results(growth=[*grown("holdfast SQLite", 0.4, 2000), *grown("DBOS SQLite", 2.5, 2100)])
    assert list_better(View(results)) == []
    assert "Nowhere, in what was measured." in page_lines(results, [])


def test_what_failed_is_named_and_the_rest_is_there(page: str) -> None:
    """A section that failed loses no other."""
    assert "- fleet: OSError: the worker did not start" in page
    assert "- growth: DBOS PostgreSQL: no PostgreSQL" in page
    assert "| in the effect | once |" in page
    assert "![Time per step and bytes on disk as a session grows](results/overview.svg)" in page


def test_aims_are_met_missed_or_not_measured() -> None:
    """As the figures say."""
    verdicts = {one.aim: one.met for one in judge(View(make_results()))}
    assert verdicts["a step on SQLite / a raw transaction"] is True
    assert verdicts["SqliteStepStore / HoldfastStepStore: bytes after 1,000 steps"] is False
    assert verdicts["PostgreSQL: submitted work is picked up after (p50)"] is None


def test_a_page_can_be_written_anew_from_its_figures(tmp_path: Path) -> None:
    """Nothing on it comes from elsewhere."""
    kept = tmp_path / "results.json"
    kept.write_bytes(msgspec.json.encode(make_results()))
    again = msgspec.json.decode(kept.read_bytes(), type=Results)
    assert list(page_lines(again, [])) == list(page_lines(make_results(), []))


def test_a_part_can_be_measured_again() -> None:
    """The rows of its subjects are replaced, the others stay, and the page says what is from another time."""
    results = make_results()
    part = Results(
        about={"date": "2026-12-24"}, sections=[Section("growth", 1.0)], growth=grown("DBOS SQLite", 9, 1)
    )
    results.renew(part, {"DBOS SQLite", "raw append"})
    subjects = {one.subject for one in results.growth}
    assert "raw append" not in subjects
    assert "raw SQLite" in subjects
    assert next(one.marks[0].first_ms for one in results.growth if one.subject == "DBOS SQLite") == 9
    assert results.turns == make_results().turns
    page = "\n".join(page_lines(results, []))
    assert "growth: 2026-12-24" in page
    assert "2026-11-16" in page
    assert "no PostgreSQL" not in page


def test_a_section_without_subjects_is_measured_again_as_a_whole() -> None:
    """Its rows are of several at once."""
    results = make_results()
    turns = [Turns({"raw SQLite": 1.0, "holdfast SQLite": 2.0})]
    results.renew(Results(about={"date": "today"}, sections=[Section("turns", 1.0)], turns=turns), ())
    assert results.turns == turns
    assert results.growth == make_results().growth

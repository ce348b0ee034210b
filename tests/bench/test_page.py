"""The page of the benchmarks says what the figures say, whoever is ahead."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench.better import list_better
from bench.explanations import WHY_AHEAD, WHY_MISSED
from bench.figures import Results, Section, Spread, exponent
from bench.headlines import FIGURES, MANY, list_behind
from bench.page import page_lines
from bench.subjects.catalogue import SUBJECTS
from bench.verdicts import judge, watch
from bench.view import View, compare
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
    """Half of the figures are between its quartiles."""
    assert Spread.of([5.0, 3.0, 1.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0, 1)
    row = next(line for line in page.splitlines() if line.startswith("| **holdfast SQLite** | 100 |"))
    assert "2.20 (2.15–2.25)" in row


def test_headlines_are_ratios_at_the_most_steps_that_both_reached(page: str) -> None:
    """The peer was stopped after 1,000: 20 / 1.5 × 5.1^0.9, in the middle of its rounds."""
    headline = next(
        line for line in page.splitlines() if line.startswith("| HoldfastStepStore | SqliteStepStore")
    )
    assert headline.split(" | ")[2:4] == ["1,000", "57.8"]
    assert "SqliteStepStore stopped at step 1,234: 50 s were over." in page


def test_a_step_is_compared_with_the_floor_turn_by_turn(page: str) -> None:
    """Ratios of one moment each, and their median."""
    assert "| holdfast SQLite | raw SQLite | 1.30 (1.25–1.35) |" in page


def test_a_ratio_is_the_median_of_the_rounds_that_belong_together() -> None:
    """Noise that hits both in the same round is not in it; of rounds that one has not, there is none."""
    assert compare([1.0, 20.0, 3.0], [2.0, 40.0, 6.0]) == Spread(0.5, 0.5, 0.5, 3)
    assert compare([1.0, 20.0], [2.0]) == Spread(0.5, 0.5, 0.5, 1)
    assert compare([1.0], []) is None
    faster = View(make_results()).ratio("DBOS SQLite", "holdfast SQLite", "step_ms")
    assert faster == pytest.approx((2.5 / 0.4,) * 3 + (150,))


def test_a_step_that_becomes_slower_than_the_floor_beside_it_is_seen() -> None:
    """A machine that becomes slower is not."""
    floor = [*[1.0] * 10, *[3.0] * 90]
    for slower, drift in ((1.0, 1.0), (2.0, 2.0)):
        ours = [*[2.0] * 10, *[6.0] * 80, *[6.0 * slower] * 10]
        growth = [
            replace(grown(name, 1, 1), rounds_ms=rounds, round_steps=30)
            for name, rounds in (("raw SQLite", floor), ("holdfast SQLite", ours))
        ]
        assert View(Results(growth=growth)).drift("holdfast SQLite", "raw SQLite", 3000) == drift


def test_a_cell_in_which_another_one_is_ahead_is_explained_or_counts(page: str) -> None:
    """Beside the table: each reason once, with all the cells that it is for."""
    (explained,) = [line for line in page.splitlines() if "it keeps the messages and nothing else." in line]
    assert "OpenAI SQLiteSession, *smaller*, 0.700" in explained
    (rest,) = [line for line in page.splitlines() if line.endswith(": **not explained**.")]
    assert "FileStepStore, *loads faster*, 0.500 (0.500–0.500)" in rest
    behind = list_behind(View(make_results()))
    assert behind is not None
    unexplained = sum(not one.why for one in behind)
    (aim,) = [one for one in judge(View(make_results())) if one.aim.startswith("cells of *In short*")]
    assert aim.figure == unexplained > 0
    assert f"| {unexplained} of {len(behind)} | at most 0 | {unexplained} |" in page
    assert list_behind(View(Results())) is None


def test_a_peer_that_is_better_is_named() -> None:
    """With its figure; one that is not, is not."""
    lines = list_better(View(make_results()))
    (smaller,) = [line for line in lines if line.startswith("**OpenAI SQLiteSession**")]
    assert "takes 1.43 times fewer bytes after 3,000 steps" in smaller
    assert "takes a step" not in smaller
    assert not any("SqliteStepStore" in line for line in lines)


def test_a_peer_that_is_not_better_is_not_named() -> None:
    """And the page says so."""
    results = Results(growth=[grown("holdfast SQLite", 0.4, 2000), grown("DBOS SQLite", 2.5, 2100)])
    assert list_better(View(results)) == []
    assert "Nowhere, in what was measured." in page_lines(results, [])


def test_what_failed_is_named_and_the_rest_is_there(page: str) -> None:
    """A section that failed loses no other."""
    assert "- fleet: OSError: the worker did not start" in page
    assert "- growth: DBOS PostgreSQL: no PostgreSQL" in page
    assert "| in the effect | once |" in page
    assert "![Time per step and bytes on disk as a session grows](results/overview.svg)" in page


def test_how_long_a_crash_test_takes_is_on_the_page_if_it_was_measured(page: str) -> None:
    """It is no aim: how long it takes depends on the machine."""
    assert "## Crash tests\n\nKilled at each.\n\n| boundaries | seconds |" in page
    assert "| 301 | 96.5 |" in page
    assert "## Crash tests" not in "\n".join(page_lines(Results(), []))


def test_what_the_proxy_adds_is_measured_in_turns(page: str) -> None:
    """What was not measured has no figure."""
    assert "| no tool | 25.0 (22.5–27.5) | 135 (128–142) | 110 (105–115) |" in page
    assert "| a tool that acts | 30.0 (25.0–35.0) | 1,040 (1,030–1,050) | 1,010 (1,005–1,015) |" in page
    assert "| a tool that reads | – | – | – |" in page
    assert "Two raw commits of a small call's bytes, beside it: 650 (625–675)." in page


def test_aims_are_met_missed_or_not_measured(page: str) -> None:
    """As the figures say; a missed one says by how much."""
    view = View(make_results())
    verdicts = {one.aim: one.met for one in judge(view)}
    assert verdicts["a step on SQLite / a raw transaction"] is True
    assert verdicts["a step on PostgreSQL / a raw insert"] is None
    assert verdicts["a pure dispatch beyond pydantic's validation"] is True
    assert verdicts["a read dispatch beyond pydantic's validation"] is False
    assert verdicts["opening 3,000 steps with all messages / `get_items`, from an open store"] is True
    assert verdicts["opening 3,000 steps without looking at messages / `get_items`, in a new process"] is True
    watched = {one.aim: one.met for one in watch(view)}
    assert watched["SqliteStepStore / HoldfastStepStore: bytes after 300 steps"] is False
    assert watched["submitted work is picked up after (p50), PostgreSQL"] is None
    assert not verdicts.keys() & watched.keys()
    assert "| bytes per byte, SQLite, after 1,000 steps | 2.00 | at most 1.45 | 0.550 (38%) |" in page


def test_a_missed_aim_is_explained_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was met needs no reason, whatever was written about it before."""
    missed, met = (
        "a read dispatch beyond pydantic's validation",
        "a pure dispatch beyond pydantic's validation",
    )
    for aim in (missed, met):
        monkeypatch.setitem(WHY_MISSED, aim, "half of it is the journal.")
    page = list(page_lines(make_results(), []))
    assert f"- {missed}: half of it is the journal." in page
    assert f"- {met}: half of it is the journal." not in page


def test_texts_name_what_is_there() -> None:
    """A subject, a column or an aim that was renamed leaves no text behind."""
    names, columns = {one.name for one in SUBJECTS}, {*FIGURES, MANY}
    assert all(name in names and column in columns for name, column in WHY_AHEAD)
    assert set(WHY_MISSED) <= {one.aim for one in judge(View(Results()))}


def test_a_page_can_be_written_anew_from_its_figures(tmp_path: Path) -> None:
    """Nothing on it comes from elsewhere."""
    kept = tmp_path / "results.json"
    kept.write_bytes(msgspec.json.encode(make_results()))
    again = msgspec.json.decode(kept.read_bytes(), type=Results)
    assert list(page_lines(again, [])) == list(page_lines(make_results(), []))


def test_a_part_can_be_measured_again() -> None:
    """As a whole: what was measured in turns stays together. The page says what is from another time."""
    results = make_results()
    part = Results(
        about={"date": "2026-12-24"}, sections=[Section("growth", 1.0)], growth=[grown("DBOS SQLite", 9, 1)]
    )
    results.renew(part)
    assert [one.subject for one in results.growth] == ["DBOS SQLite"]
    assert results.turns == make_results().turns
    page = "\n".join(page_lines(results, []))
    assert "growth: 2026-12-24" in page
    assert "2026-11-16" in page
    assert "no PostgreSQL" not in page

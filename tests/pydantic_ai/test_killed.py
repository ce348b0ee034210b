"""Agents of pydantic-ai that are killed, and run again in another process with the very same call."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.fork_server import Warm

from . import killed_agent
from .killed_agent import World

EFFECTS = {"charge": ["7:500"], "store": ["7=paid"], "slow": ["7"], "mail": ["a@example.org"]}


@pytest.fixture(scope="module")
def undisturbed(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the run comes to without a kill."""
    place = tmp_path_factory.mktemp("undisturbed")
    found: dict[str, Any] = warm.call(killed_agent.work, str(place))
    assert effects_in(place) == EFFECTS
    assert World(str(place)).read("asked") == ["0", "1", "2", "3"]
    return found


def effects_in(place: Path) -> dict[str, list[str]]:
    return {book: World(str(place)).read(book) for book in EFFECTS}


def come_to(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "commits"}


def resume(warm: Warm, place: Path, undisturbed: dict[str, Any], **options: Any) -> None:
    found = warm.call(killed_agent.work, str(place), **options)
    assert come_to(found) == come_to(undisturbed)


@pytest.mark.parametrize(
    "at",
    [
        "before the effect",
        "after the effect",
        "before the record",
        "in a batch, before the effect",
        "in a batch, after the effect",
        "before the reply is recorded",
        "after the reply is recorded",
    ],
)
def test_the_same_run_goes_on_and_every_effect_happens_once(
    at: str, warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    with warm.child(killed_agent.work, str(quick_path), at=at) as child:
        assert child.outcome() is None, "it was not killed"
    resume(warm, quick_path, undisturbed)
    assert {**effects_in(quick_path), "store": ["7=paid"]} == EFFECTS
    asked = Counter(World(str(quick_path)).read("asked"))
    # Only a reply that was not recorded is requested again.
    assert asked == {"0": 1, "1": 2 if at == "before the reply is recorded" else 1, "2": 1, "3": 1}


@pytest.mark.parametrize("at", ["after the effect", "in a batch, after the effect"])
def test_tools_that_are_declared_by_globs_act_once_as_well(
    at: str, warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    """`Durable(…, effects={"charg*": …})` in the place of metadata: the hooks of the globs are asked."""
    with warm.child(killed_agent.work, str(quick_path), at=at, globs=True) as child:
        assert child.outcome() is None, "it was not killed"
    resume(warm, quick_path, undisturbed, globs=True)
    assert {**effects_in(quick_path), "store": ["7=paid"]} == EFFECTS


def test_a_batch_of_which_one_is_done_runs_only_the_other(
    warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    with warm.child(killed_agent.work, str(quick_path), at="in a batch, before the effect") as child:
        assert child.outcome() is None
    assert effects_in(quick_path)["charge"] == ["7:500"]
    assert effects_in(quick_path)["slow"] == []
    resume(warm, quick_path, undisturbed)
    assert effects_in(quick_path)["charge"] == ["7:500"]
    assert effects_in(quick_path)["slow"] == ["7"]


def kills(stride: int) -> list[Any]:
    return [
        pytest.param(number, when, id=f"{when}-{number}")
        for number in range(1, 26, stride)
        for when in ("before", "after")
    ]


def kill_at_commit(warm: Warm, place: Path, undisturbed: dict[str, Any], number: int, when: str) -> None:
    if number > undisturbed["commits"]:
        return
    with warm.child(killed_agent.work, str(place), number=number, when=when, once=True) as child:
        outcome = child.outcome()
    # One that is killed after its last commit has come to its end already.
    resume(warm, place, undisturbed, once=True)
    found = effects_in(place)
    # Setting the same twice is allowed to what declares that it only sets something.
    assert {**found, "store": found["store"][:1]} == EFFECTS, (number, when, outcome)
    asked = Counter(World(str(place)).read("asked"))
    assert sum(asked.values()) <= 5, "at most the one reply that was not recorded is asked for again"


@pytest.mark.parametrize(("number", "when"), kills(6))
def test_killed_at_a_commit_it_goes_on_where_it_was(
    number: int, when: str, warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    kill_at_commit(warm, quick_path, undisturbed, number, when)


@pytest.mark.long
@pytest.mark.parametrize(("number", "when"), kills(1))
def test_killed_at_every_commit_it_goes_on_where_it_was(
    number: int, when: str, warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    assert undisturbed["commits"] <= 25, "there are more commits than are tried here"
    kill_at_commit(warm, quick_path, undisturbed, number, when)


def test_killed_again_and_again_it_comes_to_the_same_end(
    warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    for at in ("before the reply is recorded", "before the effect", "in a batch, before the effect"):
        with warm.child(killed_agent.work, str(quick_path), at=at) as child:
            assert child.outcome() is None, "it was not killed"
    resume(warm, quick_path, undisturbed)
    found = effects_in(quick_path)
    assert {**found, "store": found["store"][:1]} == EFFECTS


def test_a_tool_that_declares_nothing_waits_for_a_person(warm: Warm, quick_path: Path) -> None:
    """It is not known whether it happened, so it is not run again."""
    options = {"undeclared": True}
    with warm.child(killed_agent.work, str(quick_path), at="after the effect", **options) as child:
        assert child.outcome() is None
    with warm.child(killed_agent.work, str(quick_path), **options) as child:
        failure = child.failure()
    assert failure.kind == "RunWaits"
    assert "charge (m" in failure.text
    assert "it is not known whether it happened" in failure.text
    assert effects_in(quick_path)["charge"] == ["7:500"]
    # Its neighbours were not cut off by that.
    assert effects_in(quick_path)["slow"] == ["7"]


def test_or_the_agent_is_told(warm: Warm, quick_path: Path) -> None:
    options = {"undeclared": True, "in_doubt": "tell"}
    with warm.child(killed_agent.work, str(quick_path), at="after the effect", **options) as child:
        assert child.outcome() is None
    found = warm.call(killed_agent.work, str(quick_path), **options)
    assert "charge=charge: call 'm" in found["output"]
    assert "is in doubt" in found["output"]
    assert effects_in(quick_path)["charge"] == ["7:500"]


def test_what_ran_to_its_end_is_given_again_where_it_is_to_happen_once(
    warm: Warm, quick_path: Path, undisturbed: dict[str, Any]
) -> None:
    resume(warm, quick_path, undisturbed, once=True)
    resume(warm, quick_path, undisturbed, once=True)
    assert effects_in(quick_path) == EFFECTS
    assert len(World(str(quick_path)).read("asked")) == 4

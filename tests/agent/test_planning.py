"""A model's plan: in the journal, true after a crash, and done only with evidence."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from holdfast import Registry, Session, Store
from holdfast.agents import plan_tools
from holdfast.core.entries import PlanChanged
from holdfast.errors import BadInput, Closed
from holdfast.limits import PLAN_STEPS_MAX, PLAN_TEXT_CHARS
from holdfast.records import Plan, PlanStep
from holdfast.tools import Result
from tests.tools.example_tools import Url, bodies, call, die, opened, reply, results

COPY = {"what": "Copy the files", "postcondition": "both sides list the same"}
SWITCH = {"what": "Switch the name over", "postcondition": "it resolves to the new address"}
TELL = {"what": "Tell everybody", "postcondition": "the mail is in the archive"}
MOVE = {"goal": "Move the site", "steps": [COPY, SWITCH]}


def registry() -> Registry:
    return Registry(plan_tools())


async def done(session: Session, name: str, **args: Any) -> str:
    """What a call says that goes well."""
    result = await registry().dispatch(name, args, session=session)
    assert not result.is_error, result.content
    return result.content


async def refused(session: Session, name: str, **args: Any) -> str:
    """What a call says that goes wrong, and leaves the plan as it was."""
    before = session.plan
    result = await registry().dispatch(name, args, session=session)
    assert result.is_error, result.content
    assert session.plan == before
    return result.content


def plan_of(session: Session) -> Plan:
    plan = session.plan
    assert plan is not None
    return plan


def ids(session: Session) -> list[str]:
    return [step.id for step in plan_of(session).steps]


async def test_a_plan_is_made_and_shown_with_numbers_and_marks() -> None:
    """The reply to every call is the plan as it is now."""
    async with opened("memory:") as (_, session):
        shown = await done(session, "make_plan", **MOVE)
        assert shown == (
            "Goal: Move the site\n"
            "[ ] 1. Copy the files (done when: both sides list the same)\n"
            "[ ] 2. Switch the name over (done when: it resolves to the new address)\n"
            "0 of 2 done; next: 1"
        )
        await done(session, "update_plan_step", step=1, status="doing")
        await done(session, "finish_plan_step", step=1, evidence="diff -r\nsays nothing")
        await done(session, "update_plan_step", step=2, status="doing")
        await done(session, "add_plan_steps", steps=[TELL])
        shown = await done(session, "update_plan_step", step=3, status="dropped")
        assert shown == (
            "Goal: Move the site\n"
            "[x] 1. Copy the files (evidence: diff -r says nothing)\n"
            "[>] 2. Switch the name over (done when: it resolves to the new address)\n"
            "[-] 3. Tell everybody (done when: the mail is in the archive)\n"
            "1 of 2 done; next: 2"
        )
        assert await done(session, "show_plan") == shown
        assert plan_of(session).step("1").evidence == "diff -r\nsays nothing"


async def test_a_session_without_a_plan_says_how_to_make_one() -> None:
    """Also to a model that believes there is one."""
    async with opened("memory:") as (_, session):
        assert "make_plan" in await done(session, "show_plan")
        assert "make_plan" in await refused(session, "update_plan_step", step=1, status="doing")
        assert "make_plan" in await refused(session, "finish_plan_step", step=1, evidence="seen")
        assert "make_plan" in await refused(session, "add_plan_steps", steps=[TELL])


@pytest.mark.parametrize("evidence", ["", "  \n "])
async def test_a_step_without_evidence_is_not_done(evidence: str) -> None:
    """The model is told what to look at, and what to do then."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        said = await refused(session, "finish_plan_step", step=2, evidence=evidence)
        assert "step 2 is not done without evidence" in said
        assert "it resolves to the new address" in said
        assert "call finish_plan_step again" in said


async def test_a_step_becomes_done_in_one_way_only() -> None:
    """A change of status cannot go around the evidence."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        assert "finish_plan_step" in await refused(session, "update_plan_step", step=1, status="done")
        assert "todo, doing or dropped" in await refused(session, "update_plan_step", step=1, status="ready")
        missing = await refused(session, "finish_plan_step", step=1)
        assert "evidence" in missing


async def test_what_is_done_stays_as_it_was_proved() -> None:
    """Its evidence speaks about the words it had; reopened, it needs evidence anew."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        await done(session, "finish_plan_step", step=1, evidence="the same")
        assert "reopen it" in await refused(session, "update_plan_step", step=1, what="Copy some files")
        assert "reopen it" in await refused(session, "update_plan_step", step=1, status="dropped")
        await done(session, "update_plan_step", step=1, before="end")
        assert plan_of(session).step("1").status == "done"
        await done(session, "update_plan_step", step=1, status="todo", what="Copy some files")
        assert plan_of(session).step("1") == PlanStep(
            id="1", what="Copy some files", postcondition="both sides list the same"
        )


async def test_a_dropped_step_is_reopened_before_it_is_finished() -> None:
    """Work that was given up does not become done by accident."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        await done(session, "update_plan_step", step=2, status="dropped")
        assert "reopen it" in await refused(session, "finish_plan_step", step=2, evidence="seen")
        await done(session, "update_plan_step", step=2, status="doing")
        await done(session, "finish_plan_step", step=2, evidence="seen")


async def test_steps_are_added_where_they_belong_and_keep_their_numbers() -> None:
    """A number names a step for good, wherever it is moved."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        await done(session, "add_plan_steps", steps=[TELL], before=2)
        assert ids(session) == ["1", "3", "2"]
        await done(session, "update_plan_step", step="1", before="end")
        assert ids(session) == ["3", "2", "1"]
        await done(session, "update_plan_step", step=1, before="2")
        assert ids(session) == ["3", "1", "2"]
        await done(session, "update_plan_step", step=1, before=1)
        assert ids(session) == ["3", "1", "2"]
        await done(session, "update_plan_step", step=3, status="dropped")
        await done(session, "add_plan_steps", steps=[TELL])
        assert ids(session) == ["3", "1", "2", "4"]


async def test_a_step_that_does_not_exist_is_told_from_those_that_do() -> None:
    """As the one to change, and as the place to move to."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        for args in ({"step": 7, "status": "doing"}, {"step": 1, "before": 7}):
            assert "no step '7'; it has ['" in await refused(session, "update_plan_step", **args)
        assert "no step '7'" in await refused(session, "add_plan_steps", steps=[TELL], before=7)
        assert "nothing to change" in await refused(session, "update_plan_step", step=1)


async def test_a_step_that_is_open_is_not_there_twice() -> None:
    """One that is done may well be done once more."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        await done(session, "add_plan_steps", steps=[COPY, TELL, TELL])
        assert ids(session) == ["1", "2", "3"]
        await done(session, "finish_plan_step", step=1, evidence="the same")
        await done(session, "add_plan_steps", steps=[COPY])
        assert ids(session) == ["1", "2", "3", "4"]


async def test_an_unfinished_plan_is_not_replaced_unless_that_is_meant() -> None:
    """The same plan once more keeps its progress; a finished one makes room."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        await done(session, "finish_plan_step", step=1, evidence="the same")
        assert "[x] 1." in await done(session, "make_plan", **MOVE)
        other = {"goal": "Stay", "steps": [TELL]}
        assert "replace=true" in await refused(session, "make_plan", **other)
        await done(session, "make_plan", **other, replace=True)
        assert (plan_of(session).goal, ids(session)) == ("Stay", ["1"])
        await done(session, "finish_plan_step", step=1, evidence="the mail")
        await done(session, "make_plan", **MOVE)
        assert plan_of(session).goal == "Move the site"


async def test_a_plan_has_limits() -> None:
    """It is shown as a whole, so it has to stay small."""
    async with opened("memory:") as (_, session):
        many = [{"what": f"Do {n}", "postcondition": f"{n} is done"} for n in range(PLAN_STEPS_MAX)]
        long = "x" * (PLAN_TEXT_CHARS + 1)
        assert "make larger ones" in await refused(session, "make_plan", goal="All", steps=[*many, TELL])
        assert "characters" in await refused(session, "make_plan", goal=long, steps=many)
        assert "empty" in await refused(session, "make_plan", goal=" ", steps=many)
        assert "steps" in await refused(session, "make_plan", goal="Nothing", steps=[])
        assert "postcondition" in await refused(session, "make_plan", goal="x", steps=[{"what": "y"}])
        await done(session, "make_plan", goal="All", steps=many)
        assert "make larger ones" in await refused(session, "add_plan_steps", steps=[TELL])
        assert "keep the rest in a file" in await refused(session, "finish_plan_step", step=1, evidence=long)
        shown = await done(session, "finish_plan_step", step=1, evidence=long[1:])
        assert len(shown.splitlines()[1]) < 300
        assert long[1:] in await done(session, "show_plan")


async def test_a_plan_of_another_program_is_kept_the_same_way() -> None:
    """The application may set one, with ids of its own and without postconditions."""
    async with opened("memory:") as (_, session):
        await session.set_plan(Plan(steps=(PlanStep(id="fetch", what="Fetch it"),)))
        assert await done(session, "show_plan") == "[ ] fetch. Fetch it\n0 of 1 done; next: fetch"
        assert "that it is done" in await refused(session, "finish_plan_step", step="fetch", evidence="")
        await done(session, "add_plan_steps", steps=[TELL])
        await done(session, "finish_plan_step", step="fetch", evidence="it is here")
        assert ids(session) == ["fetch", "1"]


async def test_calls_of_one_reply_all_reach_the_plan() -> None:
    """Whatever order they are run in."""
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        calls = [
            call("finish_plan_step", {"step": 1, "evidence": "the same"}),
            call("update_plan_step", {"step": 2, "status": "doing"}),
            call("add_plan_steps", {"steps": [TELL]}),
        ]
        await reply(session, *calls)
        assert all(not one.is_error for one in await registry().dispatch_step(session))
        assert [step.status for step in plan_of(session).steps] == ["done", "doing", "todo"]


async def test_keeping_a_plan_changes_nothing_in_the_world() -> None:
    """A rewind takes it back, and leaves nothing behind."""
    assert all(not one.side_effects for one in plan_tools())
    async with opened("memory:") as (_, session):
        await done(session, "make_plan", **MOVE)
        before = await session.checkpoint()
        await done(session, "finish_plan_step", step=1, evidence="the same")
        await session.checkpoint()
        assert session.left_behind() == []
        await session.rewind(version=before)
        assert plan_of(session).step("1").status == "todo"
        await done(session, "finish_plan_step", step=1, evidence="the same")
        assert plan_of(session).step("1").status == "done"


async def test_a_call_that_changes_nothing_writes_nothing() -> None:
    """And the third one in a row is not run."""
    async with opened("memory:") as (store, session):
        await done(session, "make_plan", **MOVE)
        both = registry()
        said = [
            await both.dispatch("update_plan_step", {"step": 1, "status": "doing"}, session=session)
            for _ in range(3)
        ]
        assert [one.status for one in said] == ["completed", "completed", "refused"]
        assert len(await bodies(store, session, PlanChanged)) == 2


async def test_a_call_needs_a_session() -> None:
    """A plan has nowhere else to live."""
    result = await registry().dispatch("show_plan", {})
    assert result.status == "failed"
    assert "without a session" in result.content


def test_importing_holdfast_loads_nothing_that_only_tools_need() -> None:
    """A program that declares no tool does not import the libraries that read arguments."""
    heavy = "{'pydantic', 'pydantic_core', 'griffe', 'jsonschema_rs'}"
    code = f"import holdfast, sys; sys.exit(str(sorted({heavy} & set(sys.modules)) or ''))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


# -- crashes ---------------------------------------------------------------------------------------------

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("make_plan", {"goal": "Stay", "steps": [TELL], "replace": True}),
    ("add_plan_steps", {"steps": [TELL], "before": 2}),
    ("update_plan_step", {"step": 1, "status": "doing"}),
    ("update_plan_step", {"step": 2, "before": 1}),
    ("finish_plan_step", {"step": 1, "evidence": "the same"}),
]


def die_once_the_plan_is_stored(monkeypatch: pytest.MonkeyPatch, store: Store, session: Session) -> None:
    """The process is killed after the change is durable, and before the call's result is."""
    set_plan = session.set_plan

    async def set_and_die(plan: Plan | None) -> None:
        await set_plan(plan)
        await session.flush()
        die(store)

    monkeypatch.setattr(session, "set_plan", set_and_die)


@pytest.mark.parametrize(("name", "args"), CALLS)
async def test_a_call_that_was_killed_in_the_middle_is_done_once(
    store_url: Url, monkeypatch: pytest.MonkeyPatch, name: str, args: dict[str, Any]
) -> None:
    """Run again after its change was stored, it changes nothing more."""
    async with opened(store_url) as (store, session):
        await done(session, "make_plan", **MOVE)
        await reply(session, call(name, args))
        await session.flush()
        die_once_the_plan_is_stored(monkeypatch, store, session)
        with pytest.raises(Closed):
            await registry().dispatch_step(session)
    async with opened(store_url, wait_s=60) as (store, session):
        found = plan_of(session)
        (result,) = await registry().dispatch_step(session)
        assert result.status == "completed"
        assert plan_of(session) == found
        assert [one.is_error for one in results(session)] == [False]
        assert len(await bodies(store, session, PlanChanged)) == 2


async def test_a_call_that_was_killed_before_its_change_was_stored_is_done(store_url: Url) -> None:
    """Nothing of it is there, so it is simply run."""
    async with opened(store_url) as (store, session):
        await done(session, "make_plan", **MOVE)
        await reply(session, call("add_plan_steps", {"steps": [TELL]}))
        await session.flush()
        die(store)
        with pytest.raises(Closed):
            await registry().dispatch_step(session)
    async with opened(store_url, wait_s=60) as (_, session):
        assert ids(session) == ["1", "2"]
        (result,) = await registry().dispatch_step(session)
        assert isinstance(result, Result)
        assert ids(session) == ["1", "2", "3"]


async def test_evidence_cannot_be_left_out_by_hand_either() -> None:
    """The plan itself refuses it."""
    with pytest.raises(BadInput, match="without evidence"):
        PlanStep(id="1", what="Copy the files", status="done")

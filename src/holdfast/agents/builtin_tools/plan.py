"""Tools with which a model makes a plan, keeps it up to date, and finishes a step only with evidence.

The plan is in the session's journal, so the tools have no side effects: a rewind takes a change back, and no
call is ever in doubt. An interrupted call is run again, even if its change was stored and only its result was
not. So each tool leaves a plan alone that already has the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import structs

from ...core.plan import Plan, PlanStep, StepStatus
from ...errors import BadInput, NotFound
from ...limits import PLAN_EVIDENCE_SHOWN_CHARS, PLAN_STEPS_MAX, PLAN_TEXT_CHARS
from ...messages import Json
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, tool

Drafts: TypeAlias = Sequence[Mapping[str, str]]

_MARKS: dict[StepStatus, str] = {"todo": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}
_OPEN = ("todo", "doing")
_CHOOSABLE: dict[str, StepStatus] = {"todo": "todo", "doing": "doing", "dropped": "dropped"}
_END = "end"

_STEPS: dict[str, Json] = {
    "type": "array",
    "minItems": 1,
    "description": "the steps, in order",
    "items": {
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "what to do, in one sentence"},
            "postcondition": {
                "type": "string",
                "description": "what can be observed once it is done, so that others can check it",
            },
        },
        "required": ["what", "postcondition"],
        "additionalProperties": False,
    },
}
# Without a `$ref` to the schema of a step: some providers do not follow it.
_MAKE: dict[str, Json] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string", "description": "what will be true when all of it is done"},
        "steps": _STEPS,
        "replace": {
            "type": "boolean",
            "default": False,
            "description": "give up an unfinished plan for this one",
        },
    },
    "required": ["goal", "steps"],
    "additionalProperties": False,
}
_ADD: dict[str, Json] = {
    "type": "object",
    "properties": {
        "steps": _STEPS,
        "before": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "default": _END,
            "description": "the number of the step that they come before, or 'end'",
        },
    },
    "required": ["steps"],
    "additionalProperties": False,
}


def plan_tools() -> list[AnyTool]:
    """Make the tools `make_plan`, `add_plan_steps`, `update_plan_step`, `finish_plan_step` and `show_plan`.

    They change `session.plan`. Give them to a `Registry`; calls need a session.
    """
    return [
        tool(side_effects=(), schema=_MAKE)(make_plan),
        tool(side_effects=(), schema=_ADD)(add_plan_steps),
        tool(side_effects=())(update_plan_step),
        tool(side_effects=())(finish_plan_step),
        tool(side_effects=())(show_plan),
    ]


# -- the tools: none of them awaits anything between reading the plan and changing it ------------------


async def make_plan(ctx: AnyContext, goal: str, steps: Drafts, replace: bool = False) -> str:
    """Write down a plan before you begin work that takes several steps.

    Give each step a postcondition that can be observed. The plan outlives crashes and long conversations:
    keep it up to date with update_plan_step and finish_plan_step, and look at it with show_plan.
    """
    new = Plan(goal=_text("the goal", goal), steps=_number(_read(steps), first=1))
    old = ctx.session.plan
    if old is not None and not replace:
        if _says(old) == _says(new):
            return describe_plan(old)
        if any(step.status in _OPEN for step in old.steps):
            raise BadInput(
                "there is a plan that is not finished. Go on with it (show_plan), change it with "
                "add_plan_steps and update_plan_step, or give it up: make_plan with replace=true"
            )
    return await _keep(ctx, new)


async def add_plan_steps(ctx: AnyContext, steps: Drafts, before: str | int = _END) -> str:
    """Add steps to the plan, for work that you find on the way. One that is open already is not added."""
    plan = _plan_of(ctx)
    known = {(step.what, step.postcondition) for step in plan.steps if step.status in _OPEN}
    fresh = [one for one in dict.fromkeys(_read(steps)) if one not in known]
    if not fresh:
        return describe_plan(plan)
    return await _keep(ctx, _insert(plan, _number(fresh, first=_next_number(plan)), before))


async def update_plan_step(
    ctx: AnyContext,
    step: int | str,
    status: str | None = None,
    what: str | None = None,
    postcondition: str | None = None,
    before: int | str | None = None,
) -> str:
    """Begin, drop, reopen, reword or move one step of the plan. Say that you begin a step before you do it.

    Args:
        step: the number of the step
        status: doing (you begin it), dropped (no longer needed) or todo (not begun, or to be done once more);
            a step becomes done with finish_plan_step alone
        what: other words for what to do
        postcondition: another observable result
        before: move it before the step with this number, or to the 'end'
    """
    plan = _plan_of(ctx)
    old = plan.step(str(step))
    if status is what is postcondition is before is None:
        raise BadInput("nothing to change: give a status, what, postcondition or before")
    new = structs.replace(
        old,
        what=old.what if what is None else _text("what to do", what),
        postcondition=old.postcondition if postcondition is None else _text("a postcondition", postcondition),
    )
    if old.status == "done" and (status == "dropped" or (status is None and new != old)):
        raise BadInput(
            f"step {old.id} is done as it stands: reopen it first (status='todo'), or add another step"
        )
    if status is not None:
        new = structs.replace(new, status=_status(old.id, status), evidence="")
    plan = _put(plan, new)
    return await _keep(ctx, plan if before is None else _move(plan, new, before))


async def finish_plan_step(ctx: AnyContext, step: int | str, evidence: str) -> str:
    """Mark a step of the plan as done. Check its postcondition first, and quote what you saw.

    Args:
        step: the number of the step
        evidence: what shows that the postcondition holds: the output of a command, a line of a file, the id
            that a service gave; not just that you did it
    """
    plan = _plan_of(ctx)
    old = plan.step(str(step))
    if old.status == "dropped":
        raise BadInput(f"step {old.id} was dropped: reopen it first, with update_plan_step(status='doing')")
    if not evidence.strip():
        holds = f" that this holds: {_line(old.postcondition)}" if old.postcondition else " that it is done"
        raise BadInput(
            f"step {old.id} is not done without evidence. Look{holds}. Then call finish_plan_step again and "
            "quote what you saw; if it does not hold, go on with the step"
        )
    return await _keep(ctx, plan.update(old.id, status="done", evidence=_text("evidence", evidence)))


async def show_plan(ctx: AnyContext) -> str:
    """Show the plan, with what is done and the evidence for it."""
    plan = ctx.session.plan
    if plan is None:
        return "There is no plan yet; make_plan makes one."
    return describe_plan(plan, evidence_chars=PLAN_TEXT_CHARS)


# -- plans as text -------------------------------------------------------------------------------------


def describe_plan(plan: Plan, *, evidence_chars: int = PLAN_EVIDENCE_SHOWN_CHARS) -> str:
    """The plan as text: one line per step, with its number and a mark for its status."""
    lines = [f"Goal: {_line(plan.goal)}"] if plan.goal else []
    lines += [_describe(step, evidence_chars) for step in plan.steps]
    return "\n".join([*lines, _progress(plan)])


def _describe(step: PlanStep, evidence_chars: int) -> str:
    shown = f"{_MARKS[step.status]} {step.id}. {_line(step.what)}"
    if step.status == "done":
        evidence = _line(step.evidence)
        cut = "…" if len(evidence) > evidence_chars else ""
        return f"{shown} (evidence: {evidence[:evidence_chars]}{cut})"
    return f"{shown} (done when: {_line(step.postcondition)})" if step.postcondition else shown


def _progress(plan: Plan) -> str:
    wanted = [step for step in plan.steps if step.status != "dropped"]
    done = sum(step.status == "done" for step in wanted)
    left = [step.id for step in wanted if step.status == "doing"]
    left += [step.id for step in wanted if step.status == "todo"]
    return f"{done} of {len(wanted)} done; " + (f"next: {left[0]}" if left else "nothing is left to do")


def _line(text: str) -> str:
    return " ".join(text.split())


# -- plans as values -----------------------------------------------------------------------------------


def _plan_of(ctx: AnyContext) -> Plan:
    plan = ctx.session.plan
    if plan is None:
        raise NotFound("there is no plan yet: make one with make_plan")
    return plan


async def _keep(ctx: AnyContext, plan: Plan) -> str:
    if len(plan.steps) > PLAN_STEPS_MAX:
        raise BadInput(
            f"a plan has at most {PLAN_STEPS_MAX} steps, and this one would have {len(plan.steps)}: "
            "make larger ones"
        )
    if plan != ctx.session.plan:
        await ctx.session.set_plan(plan)
    return describe_plan(plan)


def _read(steps: Drafts) -> list[tuple[str, str]]:
    return [
        (_text("what to do", step["what"]), _text("a postcondition", step["postcondition"])) for step in steps
    ]


def _text(what: str, given: str) -> str:
    text = given.strip()
    if not text:
        raise BadInput(f"{what} cannot be empty")
    if len(text) > PLAN_TEXT_CHARS:
        raise BadInput(
            f"{what} has {len(text)} characters, and {PLAN_TEXT_CHARS} are allowed: say the essential, "
            "keep the rest in a file and name it"
        )
    return text


def _status(id: str, given: str) -> StepStatus:
    chosen = _CHOOSABLE.get(given)
    if chosen is not None:
        return chosen
    if given == "done":
        raise BadInput(f"step {id} becomes done with evidence alone: call finish_plan_step(step, evidence)")
    raise BadInput(f"a status is todo, doing or dropped, not {given!r}")


def _number(texts: Iterable[tuple[str, str]], *, first: int) -> tuple[PlanStep, ...]:
    return tuple(
        PlanStep(id=str(number), what=what, postcondition=postcondition)
        for number, (what, postcondition) in enumerate(texts, start=first)
    )


def _next_number(plan: Plan) -> int:
    """A number that no step has, not even a dropped one."""
    return max((int(step.id) for step in plan.steps if step.id.isdecimal()), default=0) + 1


def _says(plan: Plan) -> tuple[str, list[tuple[str, str]]]:
    """The goal and the steps, without their status."""
    return plan.goal, [(step.what, step.postcondition) for step in plan.steps]


def _put(plan: Plan, new: PlanStep) -> Plan:
    return structs.replace(plan, steps=tuple(new if step.id == new.id else step for step in plan.steps))


def _move(plan: Plan, step: PlanStep, before: str | int) -> Plan:
    if str(before) == step.id:
        return plan
    rest = structs.replace(plan, steps=tuple(one for one in plan.steps if one.id != step.id))
    return _insert(rest, (step,), before)


def _insert(plan: Plan, steps: tuple[PlanStep, ...], before: str | int) -> Plan:
    place = len(plan.steps) if before == _END else plan.steps.index(plan.step(str(before)))
    return structs.replace(plan, steps=plan.steps[:place] + steps + plan.steps[place:])

"""What a session knows: its state, plan, summary and budget, its runs and its counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..core.fold import RunInfo
from ..core.session_state import SessionState
from ..drawing.markup import Child, Html, el, join
from ..drawing.status import draw_status
from ..formatting import count, cut_text, indented, shorten, span, usd
from .context import viewer_of
from .layout import facts
from .session_frame import (
    Subject,
    draw_bar,
    draw_table,
    list_runs,
    session_page,
    wants,
    when,
)

_RUNS_MAX: Final = 100
_DECODE: Final = msgspec.json.Decoder().decode


async def show_state(request: Request, subject: Subject) -> Response:
    """State, plan, summary, budget and runs."""
    viewer = viewer_of(request)
    state = await viewer.sessions.get_state(subject.head, subject.version)
    body: list[Child] = []
    if wants(request, "body"):
        body = draw_state(state)
        if subject.version is None:
            body += draw_runs(list_runs(subject, state))
    command = f"holdfast show {subject.session} --brief --json{viewer.common.explicit_options}"
    return session_page(request, subject, state, "state", *body, commands=[command])


def draw_state(state: SessionState) -> list[Child]:
    """Everything that a session knows, messages and effects aside."""
    return [
        *_draw_summary(state),
        *_draw_plan(state),
        *_draw_values(state),
        *_draw_budget(state),
        *_draw_rest(state),
    ]


def _draw_summary(state: SessionState) -> Iterator[Html]:
    if state.summary:
        yield el("h2", "Summary")
        yield el("section", el("div", cut_text(state.summary), class_="said"), class_="box")


def _draw_plan(state: SessionState) -> Iterator[Html]:
    plan = state.plan
    yield el("h2", "Plan")
    if plan is None:
        yield el("p", "No plan.", class_="note")
        return
    done = sum(step.status == "done" for step in plan.steps)
    rows = [
        el(
            "tr",
            el("td", el("code", step.id)),
            el("td", draw_status({"done": "completed", "doing": "running"}.get(step.status, step.status))),
            el("td", cut_text(step.what)),
            el("td", cut_text(step.postcondition)),
            el("td", cut_text(step.evidence)),
        )
        for step in plan.steps
    ]
    yield el(
        "section",
        el("div", cut_text(plan.goal), class_="said") if plan.goal else None,
        el("p", f"{done} of {count(len(plan.steps), 'step')} done", class_="note"),
        draw_bar(done / max(len(plan.steps), 1), "hf-good", f"{done} of {len(plan.steps)}"),
        draw_table("Plan", ("step", "status", "what", "done when", "evidence"), rows),
        class_="box",
    )


def _draw_values(state: SessionState) -> Iterator[Html]:
    """User state as it is stored: the classes of its values need not be there."""
    values = state.facts.values
    yield el("h2", "State")
    if not values:
        yield el("p", "No values are set.", class_="note")
        return
    rows = [
        el("tr", el("td", el("code", shorten(key, 200))), el("td", el("pre", cut_text(value_text(raw)))))
        for key, raw in sorted(values.items())
    ]
    yield el("section", draw_table("State", ("key", "value"), rows), class_="box")


def value_text(raw: msgspec.Raw) -> str:
    """A value of user state as JSON, on several lines."""
    return indented(_DECODE(raw))


def _draw_budget(state: SessionState) -> Iterator[Html]:
    budget = state.budget
    caps, held = budget.caps, budget.reserved
    rows: list[tuple[str, float, float | None, float, Callable[[float], str]]] = [
        ("money", budget.usd, caps.usd, held.usd, usd),
        ("tokens", budget.tokens, caps.tokens, held.tokens, lambda number: f"{number:,.0f}"),
        ("steps", budget.steps, caps.steps, 0, lambda number: f"{number:,.0f}"),
        ("time of runs", budget.seconds, caps.seconds, 0, span),
    ]
    drawn = [
        el(
            "tr",
            el("td", name),
            el("td", show(spent)),
            el("td", show(reserved) if reserved else ""),
            el("td", show(cap) if cap is not None else "no cap"),
            el(
                "td",
                draw_bar((spent + reserved) / cap, "hf-money", f"{show(spent)} of {show(cap)}")
                if cap
                else None,
                class_="wide-cell",
            ),
        )
        for name, spent, cap, reserved, show in rows
    ]
    yield el("h2", "Budget")
    table = draw_table("Budget", ("", "spent", "reserved for requests", "cap", ""), drawn)
    yield el("section", table, class_="box")


def _draw_rest(state: SessionState) -> Iterator[Html]:
    known = state.facts
    head = known.head
    tools = ", ".join(f"{name} {number:,}" for name, number in sorted(known.counters.per_tool.items()))
    rows: list[tuple[str, Child]] = [
        ("labels", ", ".join(f"{key}={value}" for key, value in head.labels.items())),
        ("calls of tools", shorten(tools, 2_000)),
        ("tokens", f"{head.usage.input_tokens:,} in, {head.usage.output_tokens:,} out"),
        ("cached", f"{head.usage.cache_read_tokens:,} read, {head.usage.cache_write_tokens:,} written"),
        ("scratchpad", known.scratchpad or ""),
        ("asked to stop", known.cancel or ""),
        ("unfinished", "; ".join(shorten(str(problem), 300) for problem in state.problems)),
        ("random id", el("code", head.uid)),
        ("last sum", el("code", head.sum)),
    ]
    yield el("h2", "More")
    yield el("section", facts(rows), class_="box")
    left = known.left_behind
    if left:
        left_rows = [
            el(
                "tr",
                el("td", str(one.issued)),
                el("td", one.tool),
                el("td", el("code", one.call)),
                el("td", draw_status(one.status)),
            )
            for one in left
        ]
        yield el("h2", "Left behind at the origin")
        yield el(
            "section",
            draw_table("Left behind", ("entry", "tool", "call", "outcome"), left_rows),
            class_="box",
        )


def draw_runs(runs: list[RunInfo]) -> list[Child]:
    """The runs of a session, the latest first."""
    if not runs:
        return []
    rows = [
        el(
            "tr",
            el("td", el("code", run.run)),
            el("td", draw_status(run.status)),
            el("td", run.agent or ""),
            el("td", run.model or ""),
            el("td", when(run.started_at)),
            el("td", span((run.ended_at - run.started_at).total_seconds()) if run.ended_at else ""),
            el("td", run.continues or ""),
            el("td", shorten(run.reason, 300)),
        )
        for run in runs[-_RUNS_MAX:][::-1]
    ]
    said = count(len(runs), "run") + (f", the latest {_RUNS_MAX}" if len(runs) > _RUNS_MAX else "")
    names = ("run", "status", "agent", "model", "started (UTC)", "took", "continues", "reason")
    title = el("h2", "Runs ", el("span", said, class_="dim"))
    return [join(title, el("section", draw_table("Runs", names, rows), class_="box"))]

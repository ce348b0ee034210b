"""Sessions and outcomes in notebooks: a small drawing, made of what is in memory.

A notebook asks for it on the thread of its event loop. So nothing is read from the store, no lease is taken,
and nothing is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..formatting import count, shorten, usd
from ..limits import CARD_OUTPUT_CHARS
from ..reprs import attempt, describe_value
from .from_state import draw_state
from .markup import Child, Html, el, join, style
from .model import Drawing
from .style import DRAWING
from .svg import draw_legend, draw_overview

if TYPE_CHECKING:
    from ..core.session_state import SessionState

_STATUS_CLASSES: Final = {"completed": "good", "waiting": "open", "failed": "bad", "cancelled": "bad"}
_WAITING_MAX: Final = 10


def draw_state_card(state: SessionState) -> str:
    """A state: what it is about, what it has cost, what waits, and its latest calls."""
    return attempt(lambda: _draw_state_card(state), lambda: _draw_failure("a session"))


def draw_closed_card(session: str) -> str:
    """A session that is not open: this process knows its id alone."""
    note = f"not open here: `holdfast show {session}` reads it"
    return attempt(lambda: _card(_title(session, "", ""), _note(note)), lambda: _draw_failure("a session"))


def draw_outcome_card(
    *,
    session: str,
    run: str,
    status: str,
    facts: Sequence[str],
    output: object,
    waiting: Sequence[str],
    drawing: Drawing | None,
) -> str:
    """The outcome of a run."""
    return attempt(
        lambda: _draw_outcome_card(session, run, status, facts, output, waiting, drawing),
        lambda: _draw_failure("an outcome"),
    )


def _draw_state_card(state: SessionState) -> str:
    facts = state.facts
    head = facts.head
    said = [
        f"agent {head.agent}" if head.agent else "",
        count(head.step, "step"),
        f"version {state.version}" if state.version else "",
        count(head.messages, "message"),
        count(head.tool_calls, "call"),
        count(head.usage.tokens, "token") if head.usage.tokens else "",
        usd(head.usd) if head.usd else "",
        f"waits for {count(head.waiting, 'approval')}" if head.waiting else "",
    ]
    doubts = [row.tool for row in facts.effects.in_doubt]
    said.append(f"in doubt: {', '.join(doubts[:_WAITING_MAX])}" if doubts else "")
    drawing = draw_state(state)
    notes: list[Child] = []
    if head.step and not state.list_items_in_memory():
        notes.append(_note("The messages are not read yet: replies of the model are not drawn."))
    return _card(
        _title(head.session, head.status, head.reason),
        el("div", head.title, class_="hf-facts") if head.title else None,
        _facts(said),
        *_draw(drawing),
        *notes,
    )


def _draw_outcome_card(
    session: str,
    run: str,
    status: str,
    facts: Sequence[str],
    output: object,
    waiting: Sequence[str],
    drawing: Drawing | None,
) -> str:
    shown: list[Child] = []
    if output is not None:
        said = output if isinstance(output, str) else describe_value(output)
        more = "…" if len(said) > CARD_OUTPUT_CHARS else ""
        shown.append(el("pre", said[:CARD_OUTPUT_CHARS] + more))
    items = [el("li", one) for one in waiting[:_WAITING_MAX]]
    if len(waiting) > _WAITING_MAX:
        items.append(el("li", f"and {len(waiting) - _WAITING_MAX} more"))
    return _card(
        _title(session, status, ""),
        _facts([run, *facts]),
        *shown,
        el("ul", *items) if items else None,
        *_draw(drawing),
    )


def _draw(drawing: Drawing | None) -> list[Child]:
    return [] if drawing is None else [draw_overview(drawing), draw_legend(drawing)]


def _title(session: str, status: str, reason: str) -> Html:
    title: list[Child] = [el("span", session, class_="hf-title")]
    if status:
        class_ = f"hf-status {_STATUS_CLASSES.get(status, 'plain')}"
        title += [" ", el("span", status, class_=class_)]
    if reason:
        title += [" ", el("span", shorten(reason, 200), class_="hf-facts")]
    return el("div", *title)


def _facts(said: Sequence[str]) -> Html:
    return el("div", " · ".join(one for one in said if one), class_="hf-facts")


def _note(said: str) -> Html:
    return el("div", said, class_="hf-facts")


def _card(*parts: Child) -> str:
    return str(join(style(DRAWING), el("div", el("div", *parts, class_="hf-card"), class_="hf")))


def _draw_failure(what: str) -> str:
    return f"<pre>{what}, which cannot be drawn</pre>"

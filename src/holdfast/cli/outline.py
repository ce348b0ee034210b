"""A timeline for people: each call on one line, whatever became of it, and nothing that is routine.

Leases, checkpoints, and runs that begin and end as they should are left out. All that is known of a call (who
approved it, that it was cut off, its next attempt, its outcome) is one row, where the call began.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import structs
from rich.table import Table

from ..messages import CallPart, Reasoning, ToolCall, ToolResult, gives_output
from .console import SafeText, make_table
from .entry_text import blocks_text, list_notes, result_text, short_args
from .formatting import shorten, since, span, usd
from .timeline import LOST_STYLE, SIGNS, STATUS_STYLES, About, Moment, Timeline

_WIDE: Final = 70
"""Below this many columns, steps and costs are left out."""
_BESIDE: Final = 34
"""About how many columns the others take beside the text."""


class OutlineRow(Moment):
    """A moment with all that is known of its call."""

    earlier: list[str] = []
    """What the status was before, the oldest first."""
    node: str = ""
    """The node of a graph."""


class Outline:
    """Makes the rows, moment by moment."""

    def __init__(self) -> None:
        self.rows: list[OutlineRow] = []
        self._calls: dict[str, OutlineRow] = {}
        """By what `About.call` says."""
        self._asked: dict[str, ToolCall] = {}
        """The calls in messages: likewise."""
        self._latest: dict[str, str] = {}
        """By the id of the provider, which may come again."""
        self._linked: dict[str, str] = {}
        """Calls in the ledger of a thread, and what they are called here."""
        self._alone: dict[str, str] = {}
        """Those that no message has asked for yet, by the id of the provider."""
        self._given: set[str] = set()
        """The ids of calls that only give the model's output."""
        self._replies: list[tuple[OutlineRow, list[str], str]] = []
        """With their calls, and the agents that gave them where that must be said."""
        self._node = ""

    def add(self, moment: Moment, about: About | None, node: str = "") -> None:
        """Take in the next moment, of this node of a graph."""
        self._node = node
        if about is not None and about.call is not None and moment.kind in ("tool", "question", "refused"):
            self._add_call(moment, about, about.call)
        elif about is not None and about.reply is not None:
            self._add_message(moment, about, about.reply)
        elif not moment.routine:
            self._append(moment)

    def _append(self, moment: Moment, **changes: object) -> OutlineRow:
        row = OutlineRow(
            **{**structs.asdict(moment), "notes": dict(moment.notes), "node": self._node, **changes}
        )
        self.rows.append(row)
        return row

    # -- calls -----------------------------------------------------------------------------------------

    def _add_call(self, moment: Moment, about: About, call: str) -> None:
        status, detail = moment.status, moment.detail
        if about.doubt:
            status, detail = "in_doubt", about.doubt
        if moment.kind == "question":
            status += f" by {about.by}" if about.by else ""
        elif moment.kind == "refused":
            status, detail = "refused", moment.what.partition(" refused ")[2]
        elif about.by:
            detail = f"settled by {about.by}" + (f": {detail}" if detail else "")
        call = self._link(call)
        row = self._calls.get(call)
        if row is None:
            asked = self._asked.get(call)
            title = about.title or (_title_of(asked) if asked is not None else moment.what)
            if moment.status == "replayed":
                detail = f"{moment.what.partition(' gets ')[2]}: {detail}"
            kind = "tool" if moment.kind == "question" else moment.kind
            self._calls[call] = self._append(moment, what=title, status=status, detail=detail, kind=kind)
            return
        if status and row.status not in ("", status, "to approve", *row.earlier[-1:]):
            row.earlier.append(row.status)
        row.status, row.detail = status or row.status, detail
        row.took_s = row.took_s if moment.took_s is None else moment.took_s
        row.notes |= moment.notes

    def _link(self, call: str) -> str:
        """The call of a message that a call in the ledger of a thread is: `node:task/id`, by its id."""
        if "/" not in call:
            return call
        if call not in self._linked:
            id = call.rpartition("/")[2]
            asked = self._latest.get(id)
            found = asked is not None and asked not in self._calls
            self._linked[call] = asked if found and asked is not None else call
            if not found:
                self._alone[id] = call
        return self._linked[call]

    # -- messages --------------------------------------------------------------------------------------

    def _add_message(self, moment: Moment, about: About, reply: str) -> None:
        calls: list[str] = []
        for block in about.blocks:
            if isinstance(block, ToolCall):
                call = f"{reply}.{len(calls)}"
                calls.append(call)
                self._asked[call], self._latest[block.id] = block, call
                if gives_output(CallPart(block.id, block.name), about.format):
                    self._given.add(call)
        said = [block for block in about.blocks if not isinstance(block, ToolCall | ToolResult | Reasoning)]
        text = blocks_text(said)
        is_model = moment.kind == "model" or about.role == "assistant"
        if is_model:
            row = self._append(moment, what=text, kind="model")
            self._replies.append((row, calls, about.by))
        elif text:
            self._append(moment, what=f"{about.role}: {text}")
        for block in about.blocks:
            if isinstance(block, ToolResult):
                self._add_result(moment, block)

    def _add_result(self, moment: Moment, result: ToolResult) -> None:
        """A result in a message, if the ledger does not have its call: of a loop without one."""
        call = self._latest.get(result.call_id, result.call_id)
        if result.call_id in self._alone:
            # The message that asked for it was stored later.
            self._calls[call] = self._calls[self._alone.pop(result.call_id)]
        if call in self._calls or call in self._given:
            return
        asked = self._asked.get(call)
        title = _title_of(asked) if asked is not None else f"call {result.call_id}"
        status = "failed" if result.is_error else "completed"
        self._calls[call] = self._append(
            moment, kind="tool", what=title, status=status, detail=result_text(result.content)
        )

    def finish(self) -> list[OutlineRow]:
        """The rows. A reply without a text names its calls; those that have no row of their own are in it."""
        for row, calls, by in self._replies:
            alone = [self._asked[call] for call in calls if call not in self._calls]
            names = dict.fromkeys(self._asked[call].name for call in calls)
            if alone:
                row.what = f"{row.what} {blocks_text(alone)}".strip()
            elif not row.what and names:
                row.what = f"calls {', '.join(names)}"
            row.what = f"{by}: " * bool(by) + row.what
        return self.rows


def _title_of(call: ToolCall) -> str:
    return f"{call.name}({short_args(call.args)})"


def outline(timeline: Timeline) -> list[OutlineRow]:
    """The rows of a timeline, for people."""
    found = Outline()
    for moment in timeline.moments:
        # A holder that died is at its last entry.
        found.add(moment, None if moment.kind == "lost" else timeline.about.get(moment.seq))
    return found.finish()


# -- drawing -------------------------------------------------------------------------------------------


def make_outline_table(rows: Sequence[OutlineRow], start: datetime, width: int) -> Table:
    """A table with a row for each, and an empty one between steps. Times are counted from `start`."""
    columns = {"step>": _WIDE, "time>": 0, "node": 0, "": 0, "what…": 0, "took>": 0, "cost>": _WIDE}
    if not any(row.usd for row in rows):
        del columns["cost>"]
    has_nodes = any(row.node for row in rows)  # Of a graph: most of its steps are a row or two.
    if not has_nodes:
        del columns["node"]
    shown = [name for name, least in columns.items() if width >= least]
    table = make_table(*shown, title="timeline")
    before: OutlineRow | None = None
    for row in rows:
        is_lost = row.kind == "lost"
        is_next = before is not None and row.step != before.step and not has_nodes
        if before is not None and (is_next or is_lost or before.kind == "lost"):
            table.add_section()
        is_first = before is None or row.step != before.step
        sign, style = SIGNS[row.kind]
        cells = {
            "step>": SafeText(str(row.step) if is_first else "", style="dim"),
            "time>": SafeText(since(start, row.at), style="" if is_lost else "dim"),
            "node": SafeText(row.node if before is None or before.node != row.node else ""),
            "": SafeText(sign, style="" if is_lost else style),
            "what…": describe_row(row, max(width - _BESIDE, 50)),
            "took>": SafeText(span(row.took_s)),
            "cost>": SafeText(usd(row.usd) if row.usd else ""),
        }
        table.add_row(*(cells[name] for name in shown), style=LOST_STYLE if is_lost else "")
        before = row
    return table


def describe_row(row: OutlineRow, width: int) -> SafeText:
    """What happened, and what became of it, in about three lines of this width at most."""
    text = SafeText(shorten(row.what, 2 * width), style="bold" if row.kind == "lost" else "")
    if row.status not in ("", "replied"):
        text.append("  ")
        for earlier in row.earlier:
            text.append(earlier.replace("_", " "), style=_style_of(earlier)).append(", ", style="dim")
        text.append("then " if row.earlier else "", style="dim")
        text.append(row.status.replace("_", " "), style=_style_of(row.status))
    if row.detail and row.kind == "lost":
        text.append(f"; {shorten(row.detail, width)}")
    elif row.detail:
        text.append(f"  {shorten(row.detail, width)}", style="dim")
    for note in list_notes(row.notes):
        text.append(f"  noted: {shorten(note, width)}", style="dim")
    return text


def _style_of(status: str) -> str:
    return STATUS_STYLES.get(status.partition(" by ")[0], "")

"""The journal, read to people: who did what and when, and where a process fell silent."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from rich.table import Table

from ..cli.console import SafeText
from ..content.lazy import peek
from ..core import entries as kinds
from ..messages import Message
from ..records import Entry
from .children import Child
from .display import make_table

_OUTCOMES = (kinds.ToolCompleted, kinds.ToolFailed, kinds.ToolSettled)


class Timeline:
    """The table, built entry by entry."""

    def __init__(self, children: Sequence[Child], *, narrow: bool) -> None:
        self._children = {str(child.pid): child for child in children}
        self._narrow = narrow
        self._holder: str | None = None
        self._released = True
        self._usd = 0.0
        self._issued: dict[int, kinds.ToolIssued] = {}
        self._open: dict[int, str] = {}
        self._begun = False
        self.table = make_table()
        self.table.add_column("time", justify="right", no_wrap=True)
        self.table.add_column("who" if narrow else "process", no_wrap=True)
        self.table.add_column("what is on record", ratio=1, no_wrap=True, overflow="ellipsis")
        if not narrow:
            self.table.add_column("spent", justify="right", no_wrap=True)

    def read(self, entries: Iterable[Entry]) -> Table:
        """All of them, oldest first."""
        began = None
        for entry in entries:
            began = began or entry.at
            if isinstance(entry.body, kinds.LeaseTaken):
                self._take_lease(entry.body)
            elif isinstance(entry.body, kinds.LeaseReleased):
                self._released = True
            elif what := self._describe(entry):
                self._add(f"+{(entry.at - began).total_seconds():.2f}", what, cost=_cost(entry))
        return self.table

    def _take_lease(self, body: kinds.LeaseTaken) -> None:
        """A lease that was taken and not given back: its holder is gone."""
        if not self._released:
            self._add("", SafeText(f"✗ {self._describe_end()}", style="bold white on red"))
        if self._holder is not None:
            self.table.add_section()
        self._holder, self._released = body.name.rpartition(":")[2], False

    def _describe_end(self) -> str:
        child = self._children.get(self._holder or "")
        end = "gone" if child is None or not child.status else signal.Signals(-child.status).name
        return f"{end}: {', '.join(self._open.values())} has no outcome"

    def _add(self, time: str, what: SafeText, *, cost: float = 0.0) -> None:
        child = self._children.get(self._holder or "")
        who = SafeText("you", "bold yellow") if child is None else SafeText(child.name, child.style)
        if child is not None and not self._narrow:
            who.append(f" {child.pid}", style="dim")
        self._usd += cost
        spent = [] if self._narrow else [f"${self._usd:.4f}" if cost else ""]
        self.table.add_row(time, who, what, *spent)

    def _describe(self, entry: Entry) -> SafeText | None:
        """One entry in a few words; None for those that are not part of the story."""
        body = entry.body
        if isinstance(body, _OUTCOMES) and body.issued is not None:
            self._open.pop(body.issued, None)
        match body:
            case kinds.RunStarted():
                first, self._begun = not self._begun, True
                return SafeText("begins") if first else SafeText("↻ resumes", style="bold green")
            case kinds.RunPaused():
                return SafeText("… waits for a person", style="yellow")
            case kinds.RunCompleted():
                return SafeText("★ done", style="bold green")
            case kinds.CheckpointTaken(version=version):
                return SafeText(f"◆ checkpoint {version}", style="dim")
            case kinds.ToolIssued(tool=tool, key=key, side_effects=effects):
                self._issued[entry.seq] = body
                if not {"write", "mutate"}.intersection(effects):
                    return None
                self._open[entry.seq] = tool
                return SafeText(f"▸ {tool}: intent").append(f", key {key[:8]}", "dim")
            case kinds.ToolRan(tool=tool):
                return SafeText(f"✓ {tool}")
            case kinds.ToolCompleted(issued=int(issued)):
                return SafeText(f"✓ {self._issued[issued].tool}")
            case kinds.ToolSettled(issued=issued, verdict=verdict, by=by):
                return SafeText(f"✓ {self._issued[issued].tool}: {verdict}, says {by}", style="bold green")
            case kinds.MessageAdded() | kinds.ModelReplied() if entry.content is not None:
                return _quote(peek(entry.content))
            case _:
                return None


def count_takers(entries: Iterable[Entry], tool: str) -> int:
    """How many runs had a call of this tool before them that had no result yet."""
    takers, open_calls = 0, set[int]()
    for entry in entries:
        match entry.body:
            case kinds.ToolIssued(tool=name) if name == tool:
                open_calls.add(entry.seq)
                takers += 1
            case kinds.RunStarted():
                takers += len(open_calls)
            case kinds.ToolCompleted() | kinds.ToolFailed() | kinds.ToolSettled() as outcome:
                open_calls.discard(outcome.issued or 0)
            case _:
                pass
    return takers


def _cost(entry: Entry) -> float:
    return entry.body.cost_usd if isinstance(entry.body, kinds.ModelReplied) else 0.0


def _quote(message: Message) -> SafeText:
    calls = ", ".join(call.name for call in message.tool_calls)
    said = calls or f"“{message.text}”"
    return SafeText("reply: " if message.role == "assistant" else "task: ").append(said, "italic")

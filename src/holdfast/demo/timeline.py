"""The journal, read to people: one row an entry, with the kill where it happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from .. import Entry, Message
from .. import entries as kinds

_decode_message = msgspec.json.Decoder(Message).decode
_STYLES = ("cyan", "magenta", "green", "yellow")


def find_kill(entries: Sequence[Entry]) -> int | None:
    """Where a lease was taken that nobody had given back: the place of that entry."""
    held = False
    for place, entry in enumerate(entries):
        if isinstance(entry.body, kinds.LeaseTaken):
            if held:
                return place
            held = True
        elif isinstance(entry.body, kinds.LeaseReleased):
            held = False
    return None


def make_timeline(entries: Iterable[Entry], *, narrow: bool) -> Table:
    """The table."""
    rows = list(entries)
    kill = find_kill(rows)
    table = Table(expand=True, header_style="bold", border_style="dim", pad_edge=False)
    table.add_column("time", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("run", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what", ratio=1)
    if not narrow:
        table.add_column("spent", justify="right", no_wrap=True)
    styles: dict[str | None, str] = {None: "dim"}
    spent_usd = 0.0
    for place, entry in enumerate(rows):
        if place == kill:
            gap_s = (entry.at - rows[place - 1].at).total_seconds()
            mark = Text(
                f"✗ KILLED by SIGKILL; {gap_s:.1f} s later, a new process:", style="bold white on red"
            )
            table.add_section()
            table.add_row(*[""] * (2 if narrow else 3), mark)
            table.add_section()
        style = styles.setdefault(entry.run, _STYLES[(len(styles) - 1) % len(_STYLES)])
        cost_usd = entry.body.cost_usd if isinstance(entry.body, kinds.ModelReplied) else 0.0
        spent_usd += cost_usd
        time = f"+{(entry.at - rows[0].at).total_seconds():.2f}"
        what = Text(describe(entry), style="bold" if entry.kind == "checkpoint.taken" else "")
        if narrow:
            table.add_row(time, str(entry.step), what)
        else:
            run = Text("…" + entry.run[-8:] if entry.run else "", style=style)
            table.add_row(time, run, str(entry.step), what, f"${spent_usd:.3f}" if cost_usd else "")
    return table


def describe(entry: Entry) -> str:
    """One entry in a few words."""
    match entry.body:
        case kinds.SessionOpened():
            return "the session begins"
        case kinds.LeaseTaken(name=name):
            return f"lease taken by {name} (fence {entry.seq})"
        case kinds.LeaseReleased():
            return "lease given back"
        case kinds.BudgetChanged(budget=budget):
            return f"budget: ${budget.usd:.2f}" if budget.usd is not None else "budget changed"
        case kinds.PlanChanged(plan=plan):
            done = [step for step in plan.steps if step.status == "done"] if plan else []
            return f"plan: {len(done)} of {len(plan.steps)} done" if plan else "plan removed"
        case kinds.StateSet(key=key):
            return f"state: {key}"
        case kinds.RunStarted(continues=continues):
            return f"run begins, continues …{continues[-8:]}" if continues else "run begins"
        case kinds.RunCompleted():
            return "run completed"
        case kinds.ModelRequested(reserved=reserved):
            return f"model asked, ${reserved.usd:.2f} reserved"
        case kinds.CheckpointTaken(version=version):
            return f"◆ checkpoint, version {version}"
        case kinds.MessageAdded() | kinds.ModelReplied() as said if entry.content is not None:
            return _describe_message(said.role, _decode_message(entry.content))
        case _:
            return entry.kind


def _describe_message(role: str, message: Message) -> str:
    words = {"user": "user", "assistant": "reply", "tool": "result"}.get(role, role)
    text = message.text or " ".join(str(getattr(block, "content", "")) for block in message.blocks)
    short = text if len(text) <= 60 else text[:59] + "…"
    calls = "".join(f" → {call.name}" for call in message.tool_calls)
    return f"{words}: {short}{calls}"

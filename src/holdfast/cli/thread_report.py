"""The report of `show` about a thread of LangGraph: its checkpoints, with the effects of its tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from ..adapters.langgraph_threads import (
    ADAPTER_LABEL,
    LEDGERS,
    RESUME,
    THREAD_LABEL,
    ThreadCheckpoint,
    ThreadHistory,
    ThreadWrites,
    as_list,
    is_message,
    list_questions,
)
from ..content.message_blocks import list_blocks
from ..core.head import Head
from ..messages import Json
from ..store.store import Store
from ..system.clock import utc_now
from .advice import graph_call, pending_command
from .console import STANDING_STYLES, SafeText, make_table, print_facts
from .entry_text import message_text
from .formatting import clock, compact, count, shorten
from .json_views import shape_head, shape_message
from .options import Common
from .outline import Outline, OutlineRow, make_outline_table
from .session_report import SessionReport, read_report, shape_report
from .timeline import About, Moment

ThreadStanding: TypeAlias = Literal["running", "waiting", "failed", "interrupted", "completed", "empty"]


class ThreadReport(Struct, kw_only=True):
    """What `show` shows of a thread."""

    thread: str
    namespaces: list[tuple[Head, ThreadHistory]]
    """The root namespace first."""
    ledger: SessionReport | None
    """The effects of its tools."""

    @property
    def root(self) -> ThreadHistory:
        """The graph's own namespace."""
        return self.namespaces[0][1]

    @property
    def standing(self) -> ThreadStanding:
        """What the last checkpoint tells. A process that works on it can only be seen while a tool runs."""
        latest = self.root.latest
        if self.ledger is not None and self.ledger.held:
            return "running"
        if latest is None:
            return "empty"
        if latest.unanswered:
            return "waiting"
        if latest.is_last:
            return "completed"
        return "failed" if latest.errors else "interrupted"


async def read_thread(store: Store, heads: Sequence[Head]) -> ThreadReport:
    """Read all sessions of a thread."""
    namespaces: list[tuple[Head, ThreadHistory]] = []
    ledger: SessionReport | None = None
    for head in heads:
        if head.labels.get(ADAPTER_LABEL) == LEDGERS:
            ledger = await read_report(store, head, brief=False)
            continue
        namespaces.append((head, await read_history(store, head.session)))
    thread = namespaces[0][1].thread if namespaces else heads[0].labels[THREAD_LABEL]
    return ThreadReport(thread=thread, namespaces=namespaces, ledger=ledger)


async def read_history(store: Store, session: str) -> ThreadHistory:
    """Read the checkpoints of one namespace."""
    history = ThreadHistory()
    async for entry in store.tail(session, follow=False):
        history.apply(entry)
    return history


# -- for programs --------------------------------------------------------------------------------------


def shape_thread(report: ThreadReport) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "thread": report.thread,
        "standing": report.standing,
        "namespaces": [
            {
                "namespace": history.namespace,
                "session": shape_head(head, False),
                "checkpoints": [_shape_checkpoint(one) for one in history.checkpoints.values()],
            }
            for head, history in report.namespaces
        ],
        "tools": None if report.ledger is None else shape_report(report.ledger),
    }


def _shape_checkpoint(one: ThreadCheckpoint) -> dict[str, Any]:
    return {
        "checkpoint": one.id,
        "parent": one.parent,
        "seq": one.seq,
        "at": one.at,
        "step": one.step,
        "source": one.source,
        "nodes": one.nodes,
        "messages": [shape_message(message) for message in one.messages],
        "removed": one.removed,
        "values": one.values,
        "next": one.next,
        "interrupts": one.unanswered,
        "errors": one.errors,
        "written": [one.node for one in one.writes if one.is_done],
    }


# -- for people ----------------------------------------------------------------------------------------


def print_thread(
    console: Console,
    report: ThreadReport,
    common: Common,
    *,
    last: int | None = None,
    everything: bool = False,
    brief: bool = False,
) -> None:
    """Print head and timeline of a thread; with `everything`, also a table of its checkpoints."""
    _print_head(console, report)
    if not brief:
        rows = outline_thread(report)
        shown = rows if last is None else rows[-last:] if last else []
        console.print()
        console.print(make_outline_table(shown, rows[0].at if rows else utc_now(), console.width))
    if everything:
        console.print()
        console.print(_make_checkpoints(report))
    for line in advise(report, common):
        console.print(SafeText("next: ", style="bold").append(line, style="not bold"), soft_wrap=True)


def _print_head(console: Console, report: ThreadReport) -> None:
    word, now = report.standing, utc_now()
    title = SafeText(f"thread {report.thread}", style="bold")
    console.print(title.append(f"  {word}", style=STANDING_STYLES.get(word, "")))
    print_facts(console, list_facts(report, lambda at: clock(at, now)))


def list_facts(report: ThreadReport, show_time: Callable[[datetime], str]) -> list[tuple[str, str]]:
    """What there is to say of a thread, by name; empty where there is nothing."""
    heads = [head for head, _ in report.namespaces]
    ledger = None if report.ledger is None else report.ledger.head
    every = [*heads, *([] if ledger is None else [ledger])]
    latest = report.root.latest
    checkpoints = sum(len(history.checkpoints) for _, history in report.namespaces)
    asked = [shorten(text_of_value(one), 200) for one in latest.unanswered] if latest else []
    return [
        ("framework", "LangGraph"),
        ("sessions", ", ".join(head.session for head in heads)),
        ("tools", "" if ledger is None else ledger.session),
        ("began", show_time(min(head.created_at for head in every))),
        ("last change", show_time(max(head.updated_at for head in every))),
        ("size", f"{count(checkpoints, 'checkpoint')}, {count(len(report.root.messages), 'message')}"),
        ("next node", ", ".join(latest.next) if latest else ""),
        ("finished", ", ".join(one.node or "?" for one in latest.writes if one.is_done) if latest else ""),
        ("asked", "; ".join(asked)),
        ("error", "; ".join(shorten(one, 200) for one in latest.errors) if latest else ""),
        ("to approve", str(ledger.waiting or "") if ledger else ""),
        ("in doubt", str(ledger.in_doubt or "") if ledger and report.standing != "running" else ""),
    ]


def advise(report: ThreadReport, common: Common) -> Iterator[str]:
    """What to run next."""
    if report.standing == "waiting" and _has_calls_to_answer(report):
        yield f"{pending_command(common)}, which shows what waits for you"
    yield from find_next_call(report, common)


def find_next_call(report: ThreadReport, common: Common) -> Iterator[str]:
    """The call that continues the thread, if there is something to continue."""
    if report.standing == "waiting" and not _has_calls_to_answer(report):
        yield graph_call(report.thread, report.root.caller, "Command(resume=…)", common)
    elif report.standing in ("waiting", "failed", "interrupted"):
        yield graph_call(report.thread, report.root.caller, "None", common)


def _has_calls_to_answer(report: ThreadReport) -> bool:
    ledger = None if report.ledger is None else report.ledger.head
    return ledger is not None and bool(ledger.waiting or ledger.in_doubt)


def outline_thread(report: ThreadReport) -> list[OutlineRow]:
    """What is new in each checkpoint, and the calls of tools, in the order of time."""
    found: list[tuple[datetime, Moment, About | None, str]] = []
    for _, history in report.namespaces:
        for one in history.checkpoints.values():
            # A subgraph begins with a copy of what its graph has.
            if not history.namespace or one.step > 0 or one.source == "update":
                found += _list_moments(history, one)
    steps = [(one.at, one.step) for one in report.root.checkpoints.values()]
    if report.ledger is not None and report.ledger.timeline is not None:
        timeline = report.ledger.timeline
        for moment in timeline.moments:
            # A tool runs in the step after the checkpoint before it.
            moment.step = max((step for at, step in steps if at <= moment.at), default=0) + 1
            about = timeline.about.get(moment.seq) if moment.kind != "lost" else None
            found.append((moment.at, moment, about, _node_of(about)))
    found.sort(key=lambda one: one[0])
    made = Outline()
    for _, moment, about, node in found:
        made.add(moment, about, node)
    return made.finish()


def _node_of(about: About | None) -> str:
    """The node that made a call: in the ledger of a thread, its name is `node:task/id`."""
    task, slash, _ = (about.call or "" if about is not None else "").rpartition("/")
    return task.rpartition("|")[2].partition(":")[0] if slash else ""


def name_namespace(history: ThreadHistory) -> str:
    """The nodes that a subgraph is inside of, each with an arrow after it; empty of the graph itself."""
    parts = [part.partition(":")[0] for part in history.namespace.split("|") if part]
    return "".join(f"{part} > " for part in parts)


def _list_moments(
    history: ThreadHistory, one: ThreadCheckpoint
) -> Iterator[tuple[datetime, Moment, About | None, str]]:
    """What is new in a checkpoint. Its own row is there only if nothing else is."""
    where = (name_namespace(history) + ", ".join(one.nodes)).removesuffix(" > ")
    key = f"{history.namespace}@{one.seq}"

    def moment(what: str, kind: Any = "other", routine: bool = False) -> Moment:
        return Moment(seq=one.seq, at=one.at, kind=kind, what=what, step=one.step, routine=routine)

    for place_in, message in enumerate(one.messages):
        blocks = list_blocks(message)
        about = About(reply=f"{key}.{place_in}", role=message.role, blocks=blocks, format=message.format)
        kind = "model" if message.role == "assistant" else "message"
        yield one.at, moment("", kind), about, where
    if one.removed:
        yield one.at, moment(f"{count(one.removed, 'message')} removed"), None, where
    for channel, value in one.values.items():
        yield one.at, moment(f"{channel}: {text_of_value(value)}"), None, where
    if one.source == "update":
        yield one.at, moment("the state was updated from outside"), None, where
    for written in one.writes:
        for asked in list_questions(written.interrupts):
            row = Moment(
                seq=written.seq,
                at=written.at,
                kind="question",
                what=f"asks: {text_of_value(asked)}",
                step=one.step + 1,
            )
            yield written.at, row, None, written.node
        for error in written.errors:
            row = Moment(
                seq=written.seq, at=written.at, kind="other", what=error, step=one.step + 1, status="failed"
            )
            yield written.at, row, None, written.node


def describe_news(news: ThreadCheckpoint | ThreadWrites) -> str:
    """What an entry of a thread adds, on one line."""
    messages = [f"{one.role}: {message_text(one)}".rstrip() for one in news.messages]
    if isinstance(news, ThreadCheckpoint):
        values = [f"{channel}: {text_of_value(value)}" for channel, value in news.values.items()]
        then = f"next is {', '.join(news.next)}" if news.next else ""
        after = f" after {', '.join(news.nodes)}" if news.nodes else f" ({news.source})"
        return f"checkpoint{after}: " + "; ".join([*messages, *values, *([then] if then else [])])
    asked = [f"asks: {text_of_value(one)}" for one in news.interrupts]
    failed = [f"failed: {one}" for one in news.errors]
    failed += [f"the answer: {text_of_value(one)}" for channel, one in news.values if channel == RESUME]
    values = [
        f"{channel}: {text_of_value(value)}"
        for channel, value in news.values
        if not channel.startswith(("__", "branch:")) and not any(map(is_message, as_list(value)))
    ]
    return f"{news.node or 'a task'}: " + "; ".join([*asked, *failed, *messages, *values] or ["done"])


def text_of_value(value: Json) -> str:
    """A value as short text. What holdfast itself asks says it in words."""
    if isinstance(value, dict) and "holdfast" in value and isinstance(value.get("why"), str):
        return str(value["why"])
    return value if isinstance(value, str) else compact(value)


def _make_checkpoints(report: ThreadReport) -> Table:
    table = make_table("step>", "node…", "taken", "checkpoint…", "next…", title="checkpoints")
    now = utc_now()
    for _, history in report.namespaces:
        for one in history.checkpoints.values():
            here = "  ← here" if history is report.root and one is history.latest else ""
            taken = clock(one.at, now).rpartition(" ")[2]
            table.add_row(
                str(one.step), ", ".join(one.nodes) or one.source, taken, one.id, ", ".join(one.next) + here
            )
    return table

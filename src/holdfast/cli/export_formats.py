"""The forms of `holdfast export`: each a function from a session to lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from ..adapters.langgraph_threads import ThreadHistory, fold_thread
from ..agents.experiment import LogReader, Record
from ..content.message_blocks import list_blocks
from ..core.entries import Entry
from ..core.head import Head
from ..core.session_state import SessionState
from ..messages import AnyMessage, Json, Media, Reasoning, Text, ToolCall, ToolResult
from ..store.store import Store
from .entry_text import describe_media, result_text, short_args
from .formatting import count, usd
from .json_views import shape_entry
from .outline import describe_row, outline
from .session_report import read_report
from .thread_report import name_namespace

_CALL_CHARS: Final = 500
"""How much of a call of a thread's tool is written. Its result is in the transcript, whole."""


class Exported(Struct, kw_only=True):
    """A session to export."""

    state: SessionState
    entries: Sequence[Entry]
    thread: ThreadHistory | None = None
    """Its checkpoints, if it is a thread of LangGraph."""
    subgraphs: list[Exported] = []
    """The other namespaces of the thread."""
    calls: Sequence[str] = ()
    """The calls of the thread's tools with what became of them, each as text."""

    @property
    def messages(self) -> Sequence[AnyMessage]:
        """The transcript; of a thread, the messages of its latest checkpoint."""
        return self.state.transcript if self.thread is None else self.thread.messages

    def list_new_messages(self) -> Iterator[tuple[str, Sequence[AnyMessage]]]:
        """Of each subgraph the name, and the messages that the graph itself does not have."""
        known = {one.id for one in self.messages}
        for one in self.subgraphs:
            assert one.thread is not None
            messages = [each for each in one.messages if each.id is None or each.id not in known]
            if messages:
                yield name_namespace(one.thread).removesuffix(" > "), messages


async def read_exported(store: Store, head: Head, version: int | None, *, is_thread: bool) -> Exported:
    """Read a session, up to a version; `is_thread`: it is a namespace of a thread of LangGraph."""
    state = await store.load(head.session, version)
    entries = [entry async for entry in store.tail(head.session, follow=False) if entry.seq <= state.seq]
    return Exported(state=state, entries=entries, thread=fold_thread(entries) if is_thread else None)


async def list_calls(store: Store, ledger: Head) -> list[str]:
    """The calls in the ledger of a thread."""
    timeline = (await read_report(store, ledger, brief=False)).timeline
    assert timeline is not None
    rows = [row for row in outline(timeline) if row.kind == "tool"]
    return [describe_row(row, _CALL_CHARS).plain for row in rows]


Writer: TypeAlias = Callable[[Exported], Iterator[str]]
"""From a session to lines of text, each with its end of line."""


def write_text(exported: Exported) -> Iterator[str]:
    """The transcript as plain text."""
    state, thread = exported.state, exported.thread
    head = state.facts.head
    if thread is not None:
        yield f"thread {thread.thread}\n"
        yield f"LangGraph, {count(len(thread.checkpoints), 'checkpoint')}\n"
    else:
        yield f"{head.session}: {head.title}\n"
        money, tokens = usd(state.budget.usd), state.budget.tokens
        yield f"{head.status}, version {state.version}, {money}, {tokens:,} tokens\n"
    if state.summary:
        yield f"\nsummary: {state.summary}\n"
    if state.plan is not None:
        yield f"\nplan: {state.plan.goal}\n"
        for step in state.plan.steps:
            yield f"  [{step.status}] {step.what}{f' ({step.evidence})' if step.evidence else ''}\n"
    for message in exported.messages:
        yield "\n"
        yield from _write_text_message(message)
    for name, messages in exported.list_new_messages():
        yield f"\nsubgraph {name}\n"
        for message in messages:
            yield "\n"
            yield from _write_text_message(message)
    if exported.calls:
        yield "\ntools\n\n"
        yield from (f"{call}\n" for call in exported.calls)


def _write_text_message(message: AnyMessage) -> Iterator[str]:
    for block in list_blocks(message):
        if isinstance(block, Text):
            yield f"{message.role}: {block.text}\n"
        elif isinstance(block, ToolCall):
            yield f"{message.role} → {block.name}({short_args(block.args)})\n"
        elif isinstance(block, ToolResult):
            yield f"{'error' if block.is_error else 'result'}: {result_text(block.content)}\n"
        elif isinstance(block, Media):
            yield f"{message.role}: {describe_media(block)}\n"
        else:
            yield f"{message.role}: [{type(block).__name__.lower()}]\n"


def write_markdown(exported: Exported) -> Iterator[str]:
    """The transcript as Markdown: a heading for the session, and one for each message."""
    state, thread = exported.state, exported.thread
    head, budget = state.facts.head, state.budget
    if thread is not None:
        yield f"# Thread {thread.thread}\n\n"
        yield "| session | framework | checkpoints |\n| --- | --- | --- |\n"
        yield f"| `{head.session}` | LangGraph | {len(thread.checkpoints)} |\n"
    else:
        yield f"# {head.title or head.session}\n\n"
        yield "| session | status | version | cost | tokens |\n| --- | --- | --- | --- | --- |\n"
        money = usd(budget.usd)
        yield f"| `{head.session}` | {head.status} | {state.version} | {money} | {budget.tokens:,} |\n"
    if state.summary:
        yield f"\n## Summary\n\n{state.summary}\n"
    if state.plan is not None:
        yield f"\n## Plan\n\n{state.plan.goal}\n\n"
        for step in state.plan.steps:
            evidence = f" ({step.evidence})" if step.evidence else ""
            yield f"- [{'x' if step.status == 'done' else ' '}] {step.what}{evidence}\n"
    yield from _write_markdown_messages(exported.messages)
    for name, messages in exported.list_new_messages():
        yield f"\n# Subgraph {name}\n"
        yield from _write_markdown_messages(messages)
    if exported.calls:
        yield "\n# Tools\n\n"
        yield from (f"- {call}\n" for call in exported.calls)


def _write_markdown_messages(messages: Sequence[AnyMessage]) -> Iterator[str]:
    for message in messages:
        yield f"\n## {message.role.capitalize()}\n"
        yield from _write_markdown_message(message)


def _write_markdown_message(message: AnyMessage) -> Iterator[str]:
    for block in list_blocks(message):
        if isinstance(block, Text):
            yield f"\n{block.text}\n"
        elif isinstance(block, Reasoning):
            yield "\n" + "".join(f"> {line}\n" for line in block.text.splitlines())
        elif isinstance(block, ToolCall):
            yield f"\n**{block.name}** (`{block.id}`)\n\n{_fence(block.args)}"
        elif isinstance(block, ToolResult):
            word = "error" if block.is_error else "result"
            yield f"\n{word} of `{block.call_id}`:\n\n{_fence(result_text(block.content))}"
        elif isinstance(block, Media):
            yield f"\n*{describe_media(block)}*\n"
        else:
            yield f"\n*[{type(block).__name__.lower()}]*\n"


def _fence(value: Json) -> str:
    """A code block, with more ticks than its text has."""
    is_text = isinstance(value, str)
    text = value if is_text else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{'' if is_text else 'json'}\n{text}\n{ticks}\n"


def write_jsonl(exported: Exported) -> Iterator[str]:
    """Every entry, one JSON object a line, as `holdfast tail --json` prints them."""
    for entry in exported.entries:
        yield msgspec.json.encode(shape_entry(entry)).decode() + "\n"


def write_experiment(exported: Exported) -> Iterator[str]:
    """Every reply, one JSON object a line, as `holdfast.agents.experiment_log` gives them.

    Replies that a rewind left behind are included, and those of all checkpoints of a thread and its
    subgraphs; what several of these have is there once.
    """
    known: set[str] = set()
    records = [record for one in (exported, *exported.subgraphs) for record in _list_replies(one, known)]
    if exported.subgraphs:
        records.sort(key=lambda one: one["t"])
    for record in records:
        yield msgspec.json.encode(record).decode() + "\n"


def _list_replies(exported: Exported, known: set[str]) -> Iterator[Record]:
    """The records of one session, without the replies that are `known` from another one of its thread."""
    reader = LogReader(exported.state.facts.head.session)
    checkpoints = [] if exported.thread is None else exported.thread.checkpoints.values()
    by_entry = {one.seq: one for one in checkpoints}
    found: set[str] = set()
    for entry in exported.entries:
        yield from reader.read(entry)
        if (checkpoint := by_entry.get(entry.seq)) is None:
            continue
        said = [one for one in checkpoint.messages if one.role == "assistant" and one.id not in known]
        found |= {one.id for one in said if one.id is not None}
        for one in said:
            yield reader.read_foreign(entry, one, iteration=checkpoint.step, at=checkpoint.at)
    known |= found


WRITERS: dict[str, Writer] = {
    "text": write_text,
    "markdown": write_markdown,
    "jsonl": write_jsonl,
    "experiment": write_experiment,
}
"""By the names in `commands/export.py`, which has what `--help` says of them."""

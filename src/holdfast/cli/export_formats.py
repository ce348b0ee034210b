"""The forms of `holdfast export`: each a function from a session to lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ..adapters.langgraph_threads import ThreadHistory
from ..agents.experiment import LogReader
from ..content.message_blocks import list_blocks
from ..core.entries import Entry
from ..core.session_state import SessionState
from ..messages import AnyMessage, Json, Media, Reasoning, Text, ToolCall, ToolResult
from .entry_text import describe_media, result_text, short_args
from .formatting import count, usd
from .json_views import shape_entry


class Exported(Struct, kw_only=True):
    """A session to export."""

    state: SessionState
    entries: Sequence[Entry]
    thread: ThreadHistory | None = None
    """Its checkpoints, if it is a thread of LangGraph."""

    @property
    def messages(self) -> Sequence[AnyMessage]:
        """The transcript; of a thread, the messages of its latest checkpoint."""
        return self.state.transcript if self.thread is None else self.thread.messages


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
    for message in exported.messages:
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

    Replies that a rewind left behind are included, and those of all checkpoints of a thread.
    """
    reader = LogReader(exported.state.facts.head.session)
    checkpoints = [] if exported.thread is None else exported.thread.checkpoints.values()
    replies = {one.seq: one for one in checkpoints}
    for entry in exported.entries:
        records = list(reader.read(entry))
        if (checkpoint := replies.get(entry.seq)) is not None:
            said = [message for message in checkpoint.messages if message.role == "assistant"]
            at = checkpoint.at
            records += [reader.read_foreign(entry, one, iteration=checkpoint.step, at=at) for one in said]
        for record in records:
            yield msgspec.json.encode(record).decode() + "\n"


WRITERS: dict[str, Writer] = {
    "text": write_text,
    "markdown": write_markdown,
    "jsonl": write_jsonl,
    "experiment": write_experiment,
}
"""By the names in `commands/export.py`, which has what `--help` says of them."""

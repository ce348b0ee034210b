"""The forms of `holdfast export`: each a function from a session to lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from ..agents.experiment import LogReader
from ..content.message_blocks import list_blocks
from ..core.entries import Entry
from ..core.session_state import SessionState
from ..messages import AnyMessage, Json, Media, Reasoning, Text, ToolCall, ToolResult
from .entry_text import describe_media, result_text, short_args
from .formatting import usd
from .json_views import shape_entry

Writer: TypeAlias = Callable[[SessionState, Iterator[Entry]], Iterator[str]]
"""From the state of a session and its entries to lines of text, each with its end of line."""


def write_text(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """The transcript as plain text."""
    head = state.facts.head
    yield f"{head.session}: {head.title}\n"
    yield f"{head.status}, version {state.version}, {usd(state.budget.usd)}, {state.budget.tokens:,} tokens\n"
    if state.summary:
        yield f"\nsummary: {state.summary}\n"
    if state.plan is not None:
        yield f"\nplan: {state.plan.goal}\n"
        for step in state.plan.steps:
            yield f"  [{step.status}] {step.what}{f' ({step.evidence})' if step.evidence else ''}\n"
    for message in state.transcript:
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


def write_markdown(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """The transcript as Markdown: a heading for the session, and one for each message."""
    head, budget = state.facts.head, state.budget
    yield f"# {head.title or head.session}\n\n"
    yield "| session | status | version | cost | tokens |\n| --- | --- | --- | --- | --- |\n"
    yield f"| `{head.session}` | {head.status} | {state.version} | {usd(budget.usd)} | {budget.tokens:,} |\n"
    if state.summary:
        yield f"\n## Summary\n\n{state.summary}\n"
    if state.plan is not None:
        yield f"\n## Plan\n\n{state.plan.goal}\n\n"
        for step in state.plan.steps:
            evidence = f" ({step.evidence})" if step.evidence else ""
            yield f"- [{'x' if step.status == 'done' else ' '}] {step.what}{evidence}\n"
    for message in state.transcript:
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


def write_jsonl(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """Every entry, one JSON object a line, as `holdfast tail --json` prints them."""
    for entry in entries:
        yield msgspec.json.encode(shape_entry(entry)).decode() + "\n"


def write_experiment(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """Every reply, one JSON object a line, as `holdfast.agents.experiment_log` gives them.

    Replies that a rewind left behind are included.
    """
    reader = LogReader(state.facts.head.session)
    for entry in entries:
        for record in reader.read(entry):
            yield msgspec.json.encode(record).decode() + "\n"


WRITERS: dict[str, Writer] = {
    "text": write_text,
    "markdown": write_markdown,
    "jsonl": write_jsonl,
    "experiment": write_experiment,
}
"""By the names in `commands/export.py`, which has what `--help` says of them."""

"""The transcript, to read."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.entries import Entry
from ...core.session_state import SessionState
from ...messages import AnyMessage, ForeignMessage, Media, Text, ToolCall, ToolResult
from ..entry_text import describe_media, foreign_blocks, said_in, short_args, text_of
from ..formatting import usd


def write(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """Who said what, one after another."""
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
        yield from _write(message)


def _write(message: AnyMessage) -> Iterator[str]:
    blocks = foreign_blocks(message) if isinstance(message, ForeignMessage) else message.blocks
    if isinstance(message, ForeignMessage) and not blocks:
        yield f"{message.role}: {said_in(message)}\n"
    for block in blocks:
        if isinstance(block, Text):
            yield f"{message.role}: {block.text}\n"
        elif isinstance(block, ToolCall):
            yield f"{message.role} → {block.name}({short_args(block.args)})\n"
        elif isinstance(block, ToolResult):
            yield f"{'error' if block.is_error else 'result'}: {text_of(block.content)}\n"
        elif isinstance(block, Media):
            yield f"{message.role}: {describe_media(block)}\n"
        else:
            yield f"{message.role}: [{type(block).__name__.lower()}]\n"

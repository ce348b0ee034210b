"""The transcript as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...content.lazy import peek_at
from ...core.entries import Entry
from ...core.session_state import SessionState
from ...messages import AnyMessage, ForeignMessage, Json, Media, Reasoning, Text, ToolCall, ToolResult
from ..entry_text import describe_media, foreign_blocks, text_of
from ..formatting import usd


def write(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """A heading for the session, and one for each turn."""
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
        yield from _write(message)


def _write(message: AnyMessage) -> Iterator[str]:
    blocks = foreign_blocks(message) if isinstance(message, ForeignMessage) else message.blocks
    if isinstance(message, ForeignMessage) and not blocks:
        yield f"\n{_fence(peek_at(message))}"
    for block in blocks:
        if isinstance(block, Text):
            yield f"\n{block.text}\n"
        elif isinstance(block, Reasoning):
            yield "\n" + "".join(f"> {line}\n" for line in block.text.splitlines())
        elif isinstance(block, ToolCall):
            yield f"\n**{block.name}** (`{block.id}`)\n\n{_fence(block.args)}"
        elif isinstance(block, ToolResult):
            word = "error" if block.is_error else "result"
            yield f"\n{word} of `{block.call_id}`:\n\n{_fence(text_of(block.content))}"
        elif isinstance(block, Media):
            yield f"\n*{describe_media(block)}*\n"
        else:
            yield f"\n*[{type(block).__name__.lower()}]*\n"


def _fence(value: Json) -> str:
    """A block of code that its own text cannot end."""
    is_text = isinstance(value, str)
    text = value if is_text else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{'' if is_text else 'json'}\n{text}\n{ticks}\n"

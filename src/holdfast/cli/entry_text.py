"""Entries and messages in a few words."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..content.extract import unmark
from ..content.lazy import BlobMedia, peek, peek_at, read_content
from ..content.references import SCHEME
from ..core import entries as kinds
from ..core.entries import Entry
from ..errors import HoldfastError
from ..messages import (
    OWN,
    AnyMessage,
    CallPart,
    ForeignMessage,
    Json,
    Media,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    calls_of,
)
from .formatting import compact, shorten, usd


def text_of(content: str | tuple[object, ...]) -> str:
    """What a tool result says, media aside."""
    if isinstance(content, str):
        return content
    return " ".join(block.text if isinstance(block, Text) else _media_in(block) for block in content)


def describe_media(media: Media) -> str:
    """What it is and where its bytes are; they are not read."""
    name = f" {media.name}" if media.name else ""
    if isinstance(media, BlobMedia):
        where = f"{SCHEME}//{media.reference.digest}"
    else:
        where = media.url or f"{len(media.data or b''):,} bytes"
    return f"[{media.media_type}{name}, {where}]"


def _media_in(block: object) -> str:
    return describe_media(block) if isinstance(block, Media) else "[media]"


def said_in(message: AnyMessage) -> str:
    """What a message says, and which tools it calls."""
    if isinstance(message, ForeignMessage):
        calls = [part.name for part in message.parts if isinstance(part, CallPart)]
        return " ".join([message.text, *(f"→ {name}" for name in calls)]).strip()
    parts: list[str] = []
    for block in message.blocks:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, ToolCall):
            parts.append(f"→ {block.name}({short_args(block.args)})")
        elif isinstance(block, ToolResult):
            parts.append(text_of(block.content))
        elif isinstance(block, Media):
            parts.append(describe_media(block))
    return " ".join(parts)


def foreign_blocks(message: ForeignMessage) -> list[Text | ToolCall | ToolResult]:
    """What a message in a foreign format says, calls and gives, as blocks of ours. Blobs are not read. Empty
    if nothing is in a usual place."""
    data = peek_at(message)
    if not isinstance(data, dict):
        return []
    shown = ForeignMessage(format=message.format, data=data, role=message.role, parts=message.parts)
    results = [_foreign_result(shown, part.call_id) for part in message.parts if isinstance(part, ResultPart)]
    said = [Text(shown.text)] if shown.text and shown.role != "tool" else []
    return [*said, *_foreign_calls(shown), *(one for one in results if one is not None)]


def _foreign_calls(message: ForeignMessage) -> list[ToolCall]:
    try:
        calls = calls_of(message)
    except (HoldfastError, LookupError, TypeError, AttributeError):  # No reader of this format's arguments.
        parts = (part for part in message.parts if isinstance(part, CallPart))
        return [ToolCall(id=part.id, name=part.name, args="…") for part in parts]
    return [replace(call, args=_read_args(call.args)) for call in calls]


def _read_args(args: Json) -> Json:
    """As an object, also where the format has it as text."""
    try:
        return msgspec.json.decode(args) if isinstance(args, str) else args
    except msgspec.DecodeError:
        return args


def _foreign_result(message: ForeignMessage, call: str) -> ToolResult | None:
    """What a tool gave: the message itself (OpenAI), or one of its parts."""
    data = message.data
    parts = data.get("content") if isinstance(data.get("content"), list) else data.get("parts") or ()
    ids = ("tool_use_id", "tool_call_id")
    found = (part for part in parts if isinstance(part, dict) and call in [part.get(id) for id in ids])
    part = next(found, data if data.get("tool_call_id") == call else None)
    if part is None:
        return None
    whole = ForeignMessage(format=message.format, data=part, role="tool")
    said = whole.text or part.get("content")
    failed = bool(part.get("is_error")) or part.get("part_kind") == "retry-prompt"
    return ToolResult(call_id=call, content=said if isinstance(said, str) else compact(said), is_error=failed)


def short_args(args: Json) -> str:
    """Arguments as one would write them."""
    if isinstance(args, dict):
        return ", ".join(f"{key}={compact(value)}" for key, value in args.items())
    return args if isinstance(args, str) else compact(args)


def message_of(entry: Entry, format: str) -> str:
    """What the message of an entry says; one in a foreign format as far as one can tell."""
    if entry.content is None:
        return "[erased]"
    if format == OWN:
        return said_in(peek(entry.content))
    data = unmark(msgspec.json.decode(entry.content))
    return ForeignMessage(format=format, data=data, role="user").text or compact(data)


def result_of(entry: Entry) -> str:
    """What a tool gave, as the model is shown it."""
    return read_content(entry.content).text


def describe(entry: Entry, width: int = 200) -> str:
    """One entry on one line."""
    return shorten(_describe(entry), width)


def _describe(entry: Entry) -> str:
    match entry.body:
        case kinds.SessionOpened():
            return "session begins"
        case kinds.SessionForked(origin=origin, version=version):
            return f"forked from {origin}, version {version}"
        case kinds.SessionClosed(status=status, reason=reason):
            return f"status set to {status} {reason}".rstrip()
        case kinds.SessionPostponed(until=until, reason=reason):
            return f"put off until {until:%Y-%m-%d %H:%M:%S} UTC: {reason}" if until else f"put off: {reason}"
        case kinds.SessionLabelled(labels=labels):
            return "labels: " + ", ".join(f"{key}={value}" for key, value in labels.items())
        case kinds.SessionRewound(version=version):
            return f"rewound to version {version}"
        case kinds.SessionErased(upto=upto):
            return f"what was said up to entry {upto} is erased"
        case kinds.LeaseTaken(name=name):
            return f"lease taken by {name} (fence {entry.seq})"
        case kinds.LeaseRenewed():
            return "lease renewed after a silence"
        case kinds.LeaseReleased():
            return "lease given back"
        case kinds.CheckpointTaken(version=version, name=name, why=why):
            problem = f", cannot be continued: {why[0]}" if why else ""
            return f"checkpoint, version {version}{f' ({name})' if name else ''}{problem}"
        case kinds.CheckpointDropped(version=version):
            return f"version {version} is no longer offered"
        case kinds.StateSet(key=key) | kinds.StateUnset(key=key):
            return f"state: {key} {'set' if isinstance(entry.body, kinds.StateSet) else 'removed'}"
        case kinds.PlanChanged(plan=plan):
            done = sum(step.status == "done" for step in plan.steps) if plan else 0
            return f"plan: {done} of {len(plan.steps)} done" if plan else "plan removed"
        case kinds.SummaryChanged(summary=summary):
            return f"summary: {summary}"
        case kinds.BudgetChanged(budget=budget):
            caps = msgspec.to_builtins(budget)
            return "budget: " + (", ".join(f"{cap} {key}" for key, cap in caps.items()) or "no caps")
        case kinds.InboxTaken(number=number, item=item, late=late):
            what = type(item).__name__.removeprefix("Inbox").lower()
            return f"inbox: {what} {number} taken in{', too late' if late else ''}"
        case _:
            return _describe_work(entry)


def _describe_work(entry: Entry) -> str:
    match entry.body:
        case kinds.RunStarted(agent=agent, model=model, continues=continues):
            who = " ".join(one for one in (agent, f"with {model}" if model else "") if one)
            return f"run begins: {who or entry.run}{f', continues {continues}' if continues else ''}"
        case kinds.RunCompleted():
            return "run completed"
        case kinds.RunFailed(reason=reason, error=error, retry_at=retry_at):
            again = f"; tried again at {retry_at:%Y-%m-%d %H:%M:%S} UTC" if retry_at else ""
            return f"run failed: {reason} {error}".rstrip() + again
        case kinds.RunCancelled(reason=reason):
            return f"run cancelled {reason}".rstrip()
        case kinds.RunPaused(reason=reason):
            return f"run waits: {reason}"
        case kinds.DelegateStarted(session=session):
            return f"delegate works in {session}"
        case kinds.DelegateEnded(session=session, cost_usd=cost_usd):
            return f"delegate {session} ended, {usd(cost_usd)} in all"
        case kinds.MessageAdded(role=role, format=format):
            return f"{role}: {message_of(entry, format)}"
        case kinds.TranscriptCompacted(span=span):
            return f"entries {span.first} to {span.last} are replaced by a summary"
        case kinds.ModelRequested(model=model):
            return f"asks {model or 'the model'}"
        case kinds.ModelReplied(format=format):
            return f"reply: {message_of(entry, format)}"
        case kinds.ModelFailed(error=error):
            return f"no reply: {error}"
        case _:
            return _describe_tool(entry)


def _describe_tool(entry: Entry) -> str:
    match entry.body:
        case kinds.ToolIssued(tool=tool, args=args, attempt=attempt):
            return f"{tool}({short_args(args)}){f', attempt {attempt}' if attempt > 1 else ''} begins"
        case kinds.ToolRan(tool=tool, args=args):
            return f"{tool}({short_args(args)}): {result_of(entry)}"
        case kinds.ToolCompleted(call=call, replay_of=replay_of):
            again = f", as it was for {replay_of}" if replay_of else ""
            return f"call {call.id} completed{again}: {result_of(entry)}"
        case kinds.ToolFailed(call=call, error=error):
            return f"call {call.id} failed: {error}"
        case kinds.ToolRefused(tool=tool, gate=gate):
            return f"{tool} refused ({gate}): {result_of(entry)}"
        case kinds.ToolInDoubt(call=call, why=why):
            return f"call {call.id} is in doubt: {why}"
        case kinds.ToolSettled(call=call, verdict=verdict, by=by, note=note):
            return f"call {call.id} settled by {by}: {verdict.replace('_', ' ')} {note}".rstrip()
        case kinds.ToolDiscarded(call=call):
            return f"call {call.id} had no outcome and was harmless"
        case kinds.ToolUndone(issued=issued):
            return f"the effect of entry {issued} was taken back"
        case kinds.ToolAnnotated(notes=notes):
            return f"note: {compact(notes)}"
        case kinds.ToolReported():
            return f"progress: {'[erased]' if entry.content is None else msgspec.json.decode(entry.content)}"
        case kinds.ApprovalAsked(call=call, tool=tool, args=args, why=why):
            return f"asks whether {tool}({short_args(args)}) may be called ({call.id}): {why}"
        case kinds.ApprovalGiven(call=call, by=by, note=note):
            return f"{by} agreed to {call.id} {note}".rstrip()
        case kinds.ApprovalRefused(call=call, by=by):
            return f"{by} refused {call.id}"
        case _:
            return entry.kind

"""Entries and messages as short text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..content.lazy import BlobMedia, peek, read_content
from ..content.message_blocks import find_agent, list_blocks, list_stored_blocks
from ..content.references import SCHEME
from ..core import effects
from ..core import entries as kinds
from ..core.entries import Entry
from ..formatting import short_args as short_args
from ..messages import OPENAI_AGENTS, OWN, AnyMessage, Block, Json, Media, Text, ToolCall, ToolResult
from .formatting import compact, shorten, usd

_ERASED = "[erased]"


def result_text(content: str | tuple[object, ...]) -> str:
    """The text of a tool result, with a short description of media."""
    if isinstance(content, str):
        return content
    return " ".join(block.text if isinstance(block, Text) else _media_in(block) for block in content)


def describe_media(media: Media) -> str:
    """The type and place of media; the bytes are not read."""
    name = f" {media.name}" if media.name else ""
    if isinstance(media, BlobMedia):
        where = f"{SCHEME}//{media.reference.digest}"
    else:
        where = media.url or f"{len(media.data or b''):,} bytes"
    return f"[{media.media_type}{name}, {where}]"


def _media_in(block: object) -> str:
    return describe_media(block) if isinstance(block, Media) else "[media]"


def message_text(message: AnyMessage) -> str:
    """The text of a message, the calls that it makes, and the results in it."""
    return blocks_text(list_blocks(message))


def blocks_text(blocks: Sequence[Block]) -> str:
    """The text of blocks, the calls and results among them. Reasoning is left out."""
    parts: list[str] = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, ToolCall):
            parts.append(f"→ {block.name}({short_args(block.args)})")
        elif isinstance(block, ToolResult):
            parts.append(result_text(block.content))
        elif isinstance(block, Media):
            parts.append(describe_media(block))
    return " ".join(parts)


def list_notes(notes: Mapping[str, Json]) -> list[str]:
    """What a tool noted about its effect, one text a note: the requests that it made, one by one, and other
    notes by their names. Notes of holdfast itself are left out."""
    found: list[str] = []
    for name, value in notes.items():
        if name == effects.REQUESTS and isinstance(value, list):
            found += [_request_text(one) for one in value]
        elif name != effects.PROGRESS:
            found.append(f"{name}={compact(value)}")
    return found


def _request_text(request: Json) -> str:
    """One HTTP request that a tool noted: what was asked for, and whether there was an answer."""
    if not isinstance(request, dict) or not {"method", "url"} <= request.keys():
        return f"request {compact(request)}"
    more = [f"{key} {_plain(value)}" for key, value in request.items() if key not in _REQUEST_KEYS]
    return ", ".join(
        [f"{_plain(request['method'])} {_plain(request['url'])}: {_answer_text(request)}", *more]
    )


def _answer_text(request: Mapping[str, Json]) -> str:
    """What became of an HTTP request."""
    status, error = request.get("status"), request.get("error")
    if status is not None:
        return f"status {_plain(status)}"
    if error is None:
        return "no answer"
    return f"{_plain(error)}, {'not sent' if request.get('sent') is False else 'no answer'}"


def _noted_text(request: Mapping[str, Json]) -> str:
    """An entry about an HTTP request: that it is about to be sent, or what became of it, by its number."""
    if "n" not in request:
        return f"{_plain(request.get('method'))} {_plain(request.get('url'))}"
    return f"number {_plain(request['n'])}: {_answer_text(request)}"


_REQUEST_KEYS = ("method", "url", "status", "error", "sent", "attempt", "at", "ended_at")


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else compact(value)


def entry_blocks(entry: Entry, body: kinds.MessageAdded | kinds.ModelReplied) -> Sequence[Block]:
    """The blocks of an entry's message, in any format. Blobs are not read."""
    if entry.content is None:
        return (Text(_ERASED),)
    if body.format == OWN:
        return peek(entry.content).blocks
    return list_stored_blocks(bytes(entry.content), body.format, body.role, body.parts)


def entry_message_text(entry: Entry, body: kinds.MessageAdded | kinds.ModelReplied) -> str:
    """The text of an entry's message, in any format, with its calls and results."""
    return blocks_text(entry_blocks(entry, body))


def reply_agent(entry: Entry, body: kinds.ModelReplied) -> str:
    """The agent that gave a reply, if the reply says so; else an empty text."""
    if entry.content is None or body.format != OPENAI_AGENTS:
        return ""
    return find_agent(msgspec.json.decode(entry.content), body.format) or ""


def entry_details_text(entry: Entry, text: str) -> str:
    """A text that was made of the details of an entry, unless these were erased."""
    return _ERASED if entry.details_erased else text


def entry_args_text(entry: Entry, args: Json) -> str:
    """The arguments of the call that an entry is about."""
    return _ERASED if entry.details_erased else short_args(args)


def entry_result_text(entry: Entry) -> str:
    """The result of a tool, as the model sees it."""
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
            return (
                f"postponed until {until:%Y-%m-%d %H:%M:%S} UTC: {reason}"
                if until
                else f"postponed: {reason}"
            )
        case kinds.SessionLabelled(labels=labels):
            return "labels: " + ", ".join(f"{key}={value}" for key, value in labels.items())
        case kinds.SessionRewound(version=version):
            return f"rewound to version {version}"
        case kinds.SessionErased(upto=upto):
            return f"contents up to entry {upto} erased"
        case kinds.LeaseTaken(name=name):
            return f"lease taken by {name} (fence {entry.seq})"
        case kinds.LeaseRenewed():
            return "lease renewed after missing heartbeats"
        case kinds.LeaseReleased():
            return "lease released"
        case kinds.CheckpointTaken(version=version, name=name, why=why):
            problem = f", cannot be continued: {why[0]}" if why else ""
            return f"checkpoint, version {version}{f' ({name})' if name else ''}{problem}"
        case kinds.CheckpointDropped(version=version):
            return f"version {version} dropped"
        case kinds.StateSet(key=key) | kinds.StateUnset(key=key):
            return f"state: {key} {'set' if isinstance(entry.body, kinds.StateSet) else 'removed'}"
        case kinds.PlanChanged(plan=plan):
            if entry.details_erased:
                return f"plan: {_ERASED}"
            done = sum(step.status == "done" for step in plan.steps) if plan else 0
            return f"plan: {done} of {len(plan.steps)} done" if plan else "plan removed"
        case kinds.SummaryChanged(summary=summary):
            return f"summary: {entry_details_text(entry, summary)}"
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
            again = f"; retry at {retry_at:%Y-%m-%d %H:%M:%S} UTC" if retry_at else ""
            return f"run failed: {reason} {error}".rstrip() + again
        case kinds.RunCancelled(reason=reason):
            return f"run cancelled {reason}".rstrip()
        case kinds.RunPaused(reason=reason):
            return f"run waits: {reason}"
        case kinds.DelegateStarted(session=session):
            return f"delegate works in {session}"
        case kinds.DelegateEnded(session=session, cost_usd=cost_usd):
            return f"delegate {session} ended, {usd(cost_usd)} in all"
        case kinds.MessageAdded(role=role) as body:
            return f"{role}: {entry_message_text(entry, body)}"
        case kinds.TranscriptCompacted(span=span):
            return f"entries {span.first} to {span.last} replaced by a summary"
        case kinds.ModelRequested(model=model):
            return f"request to {model or 'the model'}"
        case kinds.ModelReplied() as body:
            by = reply_agent(entry, body)
            return f"reply{f' of {by}' if by else ''}: {entry_message_text(entry, body)}"
        case kinds.ModelFailed(error=error):
            return f"no reply: {entry_details_text(entry, error)}"
        case _:
            return _describe_tool(entry)


def _describe_tool(entry: Entry) -> str:
    match entry.body:
        case kinds.ToolIssued(tool=tool, args=args, attempt=attempt):
            again = f", attempt {attempt}" if attempt > 1 else ""
            return f"{tool}({entry_args_text(entry, args)}){again} begins"
        case kinds.ToolRan(tool=tool, args=args):
            return f"{tool}({entry_args_text(entry, args)}): {entry_result_text(entry)}"
        case kinds.ToolCompleted(call=call, replay_of=replay_of):
            again = f", replayed from {replay_of}" if replay_of else ""
            return f"call {call.id} completed{again}: {entry_result_text(entry)}"
        case kinds.ToolFailed(call=call, error=error):
            return f"call {call.id} failed: {entry_details_text(entry, error)}"
        case kinds.ToolRefused(tool=tool, gate=gate):
            return f"{tool} refused ({gate}): {entry_result_text(entry)}"
        case kinds.ToolInDoubt(call=call, reason=reason):
            return f"call {call.id} is in doubt: {entry_details_text(entry, reason)}"
        case kinds.ToolSettled(call=call, verdict=verdict, by=by, note=note):
            return f"call {call.id} settled by {by}: {verdict.replace('_', ' ')} {note}".rstrip()
        case kinds.ToolDiscarded(call=call):
            return f"call {call.id} had no outcome and no side effects"
        case kinds.ToolUndone(issued=issued):
            return f"the effect of entry {issued} was undone"
        case kinds.ToolAnnotated(notes={effects.REQUEST: dict(request), **more}) if not more:
            return f"request: {entry_details_text(entry, _noted_text(request))}"
        case kinds.ToolAnnotated(notes=notes):
            return f"note: {entry_details_text(entry, compact(notes))}"
        case kinds.ToolReported():
            return f"progress: {_ERASED if entry.content is None else msgspec.json.decode(entry.content)}"
        case kinds.ApprovalAsked(call=call, tool=tool, args=args, why=why):
            asked = f"asks for approval of {tool}({entry_args_text(entry, args)}) ({call.id})"
            return f"{asked}: {entry_details_text(entry, why)}"
        case kinds.ApprovalGiven(call=call, by=by, note=note):
            return f"{by} approved {call.id} {note}".rstrip()
        case kinds.ApprovalRefused(call=call, by=by):
            return f"{by} refused {call.id}"
        case _:
            return entry.kind

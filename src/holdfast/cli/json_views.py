"""The JSON of sessions, runs, entries and other things that commands print with `--json`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..adapters.langgraph_threads import ADAPTER_LABEL, LEDGERS, NAMESPACE_LABEL, THREAD_LABEL, THREADS
from ..blobs.blob import Blob
from ..content.lazy import peek_at
from ..core.budget import Usage
from ..core.diff import ABSENT
from ..core.entries import Entry
from ..core.fold import Checkpoint, RunInfo
from ..core.head import Head
from ..messages import AnyMessage, ForeignMessage
from ..store.approvals import Waiting

_ADAPTERS: Final = {
    THREADS: "LangGraph",
    LEDGERS: "LangGraph tools",
    "pydantic-ai": "pydantic-ai",
    "openai-agents": "OpenAI Agents",
}
_NO_CONTENT = msgspec.Raw(b"null")


def standing(head: Head, held: bool) -> str:
    """The status of a session, or `running`, `held`, `interrupted` or `idle` by its lease and last run."""
    if held:
        return "running" if head.open_run else "held"
    if head.open_run:
        return "interrupted"
    return "idle" if head.status == "active" else head.status


def shape_head(head: Head, held: bool) -> dict[str, Any]:
    """A session without its contents."""
    return {
        "session": head.session,
        "title": head.title,
        "standing": standing(head, held),
        "status": head.status,
        "reason": head.reason,
        "agent": head.agent,
        "labels": head.labels,
        "created_at": head.created_at,
        "updated_at": head.updated_at,
        "holder": head.lease.name if held and head.lease else None,
        "parent": head.parent,
        "origin": head.origin,
        "step": head.step,
        "version": head.current_version,
        "messages": head.messages,
        "runs": head.runs,
        "tool_calls": head.tool_calls,
        "usage": shape_usage(head.usage),
        "usd": head.usd,
        "approvals_waiting": head.waiting,
        "effects_open": head.in_doubt,
    }


def name_adapter(head: Head) -> str:
    """The framework whose adapter made a session, in place of an agent; empty if it is none."""
    name = head.labels.get(ADAPTER_LABEL) or head.labels.get("agent_framework", "")
    return _ADAPTERS.get(name, "")


def name_thread(head: Head) -> str:
    """What a session of a LangGraph thread is, in place of a title; empty if it is none."""
    thread = head.labels.get(THREAD_LABEL)
    if thread is None:
        return ""
    if head.labels.get(ADAPTER_LABEL) == LEDGERS:
        return f"tools of thread {thread}"
    namespace = head.labels.get(NAMESPACE_LABEL)
    return f"thread {thread}" + (f", {namespace}" if namespace else "")


def shape_usage(usage: Usage) -> dict[str, int]:
    """The numbers of tokens."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


def shape_run(run: RunInfo) -> dict[str, Any]:
    """A run."""
    return {
        "run": run.run,
        "session": run.session,
        "status": run.status,
        "reason": run.reason,
        "agent": run.agent,
        "model": run.model,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "continues": run.continues,
        "parent": msgspec.to_builtins(run.parent),
    }


def shape_checkpoint(one: Checkpoint) -> dict[str, Any]:
    """A version."""
    return {
        "version": one.version,
        "name": one.name,
        "seq": one.seq,
        "at": one.at,
        "step": one.step,
        "run": one.run,
        "base": one.base,
        "continuable": one.continuable,
        "why": one.why,
    }


def shape_waiting(one: Waiting) -> dict[str, Any]:
    """A call that waits for a person."""
    shape = {
        "kind": one.kind,
        "session": one.session,
        "call": one.call,
        "entry": one.entry,
        "tool": one.tool,
        "args": one.args,
        "why": one.why,
        "since": one.since,
    }
    if one.kind == "in_doubt":
        shape["why"] = one.why or "the process that ran it is gone and left no outcome"
        shape["operation"] = one.operation
        shape["notes"] = one.notes
    return shape


def shape_entry(entry: Entry) -> dict[str, Any]:
    """One entry of the journal, body and content as they are stored."""
    return {
        "seq": entry.seq,
        "at": entry.at,
        "run": entry.run,
        "step": entry.step,
        "kind": entry.kind,
        "body": entry.body,
        "content": entry.content if entry.content is not None else _NO_CONTENT,
        "erased": entry.erased or entry.details_erased,
    }


def shape_blob(blob: Blob) -> dict[str, Any]:
    """A blob."""
    return {
        "digest": blob.digest,
        "size": blob.size,
        "media_type": blob.media_type,
        "name": blob.name,
        "metadata": blob.metadata,
        "put_at": blob.put_at,
        "sessions": blob.sessions,
    }


def shape_value(value: object) -> object:
    """A value of user state as JSON, or else its `repr`. An absent value is null."""
    if value is ABSENT:
        return None
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError):
        return repr(value)


def shape_message(message: AnyMessage) -> dict[str, Any]:
    """A message: as blocks, or in a foreign format as it was given."""
    if isinstance(message, ForeignMessage):
        return {"role": message.role, "format": message.format, "data": peek_at(message)}
    return {"role": message.role, "format": message.format, "blocks": message.blocks}

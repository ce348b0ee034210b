"""The experiment log: one JSON object per line for each recorded reply, also for those before a rewind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, get_args

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..content.extract import unmark
from ..content.lazy import peek
from ..content.message_blocks import FORMATS, LANGCHAIN, find_agent, list_blocks
from ..core.budget import Usage
from ..core.entries import (
    AdapterBody,
    Entry,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStarted,
    SessionRewound,
    StateSet,
    StateUnset,
)
from ..core.fold import THREAD, ThreadPlace, cast_of
from ..core.head import Head
from ..core.values import Values
from ..engine.journal import Journal
from ..errors import HoldfastError, StoreFailed
from ..ids import SessionId
from ..messages import (
    OWN,
    CallPart,
    ForeignMessage,
    Json,
    Message,
    Part,
    Text,
    ToolCall,
    calls_of,
    foreign,
    gives_output,
)
from ..session.session import Session
from ..store.store import Store
from ..system import files
from .thread_view import ThreadRole, find_final, mark_of

Record: TypeAlias = dict[str, Json]
_ROLES: Final = get_args(ThreadRole)
_DECISIONS: Final = ("CONTINUE", "STOP", "STEP_BACK")
_STEPS: Final = "adapter.steps.snapshot"
"""The kind of entry in which pydantic-ai's step persistence stores messages."""
_PYDANTIC_AI: Final = "pydantic-ai"
_OPEN_MAX: Final = 100
"""How many sessions a log file keeps readers for. Any other is read from its beginning again."""
_values = Values()


async def experiment_log(store: Store, session: str) -> AsyncIterator[Record]:
    """Yield the records of a session, oldest first."""
    reader = LogReader(SessionId(session))
    async for entry in store.tail(session, follow=False):
        for record in reader.read(entry):
            yield record


class _ReplyContents(Struct, kw_only=True):
    """The contents of a reply of any format."""

    content: Json
    given: dict[str, Json] | None = None
    agent: str | None = None
    mark: Mapping[str, Json] = {}
    model: str | None = None
    provider: str | None = None
    citations: list[Json] = msgspec.field(default_factory=list)


class LogReader:
    """Reads a journal from its first entry on, and makes the records of its replies."""

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self._runs: dict[str, RunStarted] = {}
        self._asked: dict[int, str | None] = {}
        """The models of the requests without an outcome, by the `seq` of their entry."""
        self._place: ThreadPlace | None = None
        self._replies: dict[str, int] = {}
        """The number of replies in each run of step persistence."""

    def read(self, entry: Entry) -> Sequence[Record]:
        """Make the records of the next entry; most have none."""
        body = entry.body
        match body:
            case ModelReplied() | MessageAdded(role="assistant"):
                return [self._read_reply(entry, body)]
            case AdapterBody() if entry.kind == _STEPS:
                return self._read_snapshot(entry)
            case RunStarted() if entry.run is not None:
                self._runs[entry.run] = body
            case ModelRequested(model=model):
                self._asked[entry.seq] = model
            case ModelFailed(request=request):
                self._asked.pop(request or 0, None)
            case StateSet(key=key, value=value) if key == THREAD:
                self._place = _read_place(value)
            case StateUnset(key=key) if key == THREAD:
                self._place = None
            case SessionRewound(state=state):
                self._place = _read_place(state.get(THREAD))
            case _:
                pass
        return ()

    def _read_reply(self, entry: Entry, body: ModelReplied | MessageAdded) -> Record:
        said = _read(entry, body)
        run = self._runs.get(entry.run or "")
        asked = run.model if run is not None else None
        usage, cost_usd, latency_ms = None, None, None
        if isinstance(body, ModelReplied):
            asked = self._asked.pop(body.request or 0, None) or asked
            said.model = body.model or said.model
            usage, cost_usd, latency_ms = body.usage, body.cost_usd, body.latency_ms
        return self._record(
            entry,
            said,
            body.parts,
            body.format,
            asked=asked,
            usage=usage,
            cost_usd=cost_usd,
            latency_ms=latency_ms,
        )

    def _read_snapshot(self, entry: Entry) -> list[Record]:
        """Make the records of the replies that a snapshot of step persistence adds."""
        records = []
        replies = self._replies.get(entry.run or "", 0)
        messages = [] if entry.content is None else unmark(msgspec.json.decode(entry.content))
        for data in messages:
            if not isinstance(data, dict) or data.get("kind") != "response":
                continue
            message = foreign(data, _PYDANTIC_AI)
            used = data.get("usage")
            record = self._record(
                entry,
                _read_foreign(message),
                message.parts,
                _PYDANTIC_AI,
                usage=_usage_of(used if isinstance(used, dict) else {}),
            )
            record["t"], record["iter"] = _time_of(data, entry.at), replies
            replies += 1
            records.append(record)
        self._replies[entry.run or ""] = replies
        return records

    def read_foreign(self, entry: Entry, message: ForeignMessage, *, iteration: int, at: datetime) -> Record:
        """Make the record of a reply that an adapter found in an entry of its own kind."""
        used = message.data.get("usage_metadata") if isinstance(message.data, dict) else None
        usage = _usage_of(used) if isinstance(used, dict) else None
        said = _read_foreign(message)
        record = self._record(entry, said, message.parts, message.format, usage=usage)
        record["t"], record["iter"] = at.timestamp(), max(iteration, 0)
        return record

    def _record(
        self,
        entry: Entry,
        said: _ReplyContents,
        parts: Sequence[Part],
        format: str,
        *,
        asked: str | None = None,
        usage: Usage | None = None,
        cost_usd: float | None = None,
        latency_ms: float | None = None,
    ) -> Record:
        run = self._runs.get(entry.run or "")
        agent = said.agent or (run.agent if run is not None else None) or ""
        cast = self._find_cast(run)
        role = next((one for one in (said.mark.get("role"), cast.get(agent)) if one in _ROLES), "agent")
        provider, colon, model = (asked or "").removeprefix("gateway/").partition(":")
        calls = [part for part in parts if isinstance(part, CallPart)]
        return {
            "t": entry.at.timestamp(),
            "iter": self._find_iteration(entry, said.mark, in_thread=bool(cast)),
            "agent_id": agent.removeprefix(f"{_PYDANTIC_AI}/"),
            "role": role,
            "content": said.content if said.given is None else said.given,
            "metadata": {
                "session": self._session,
                "seq": entry.seq,
                "run": entry.run,
                "model": said.model or (model if colon else provider) or None,
                "provider": said.provider or (provider if colon else None) or None,
                "citations": said.citations,
                "calls": [call.name for call in calls if not gives_output(call, format)],
                "input_tokens": None if usage is None else usage.input_tokens,
                "output_tokens": None if usage is None else usage.output_tokens,
                "cost_usd": cost_usd,
            },
            "actions": _actions_of(said.given) if role == "moderator" and said.given is not None else None,
            "latency_ms": latency_ms if latency_ms is None else max(latency_ms, 0.0),
        }

    def _find_cast(self, run: RunStarted | None) -> dict[str, str]:
        """The roles by agent in the thread that the run is a turn of; empty if it is none."""
        outer = self._runs.get(run.parent.run or "") if run is not None and run.parent is not None else None
        return {} if outer is None else cast_of(outer.config)

    def _find_iteration(self, entry: Entry, mark: Mapping[str, Json], *, in_thread: bool) -> int:
        """The iteration in the reply's metadata; for an erased reply, the current iteration."""
        marked = mark.get("iter")
        if isinstance(marked, int) and not isinstance(marked, bool) and marked >= 0:
            return marked
        if in_thread and self._place is not None:
            return self._place.iteration
        return max(entry.step - 1, 0)


def _read_place(value: Raw | UnsetType | None) -> ThreadPlace | None:
    return _values.decode(value, ThreadPlace) if isinstance(value, Raw) else None


# -- what a reply says ---------------------------------------------------------------------------------


def _read(entry: Entry, body: ModelReplied | MessageAdded) -> _ReplyContents:
    if entry.content is None:
        return _ReplyContents(content="[erased]")
    if body.format == OWN:
        return _read_own(peek(entry.content))
    data = unmark(msgspec.json.decode(entry.content))
    return _read_foreign(ForeignMessage(format=body.format, data=data, role=body.role, parts=body.parts))


def _read_own(message: Message) -> _ReplyContents:
    details = message.metadata
    noted = [details, *(block.metadata for block in message.blocks if isinstance(block, Text))]
    return _ReplyContents(
        content=message.text,
        given=find_final(message),
        agent=message.agent,
        mark=mark_of(message),
        model=_text_under(details, "model_name"),
        provider=_text_under(details, "provider_name"),
        citations=_citations_in(noted),
    )


def _read_foreign(message: ForeignMessage) -> _ReplyContents:
    data = message.data
    content: Json = "".join(block.text for block in list_blocks(message) if isinstance(block, Text))
    if message.format not in FORMATS:
        content = message.text
    if not content and not message.parts and message.format not in FORMATS:
        # An unknown format: only the application knows where the text is.
        content = data if isinstance(data, dict | str) else msgspec.json.encode(data).decode()
    if not isinstance(data, dict):
        return _ReplyContents(content=content)
    said = data.get("content") or data.get("parts")
    more = data.get("response_metadata")
    about = {**more, **data} if isinstance(more, dict) else data  # Of a message of LangChain.
    noted = [data, *(part for part in said if isinstance(part, dict))] if isinstance(said, list) else [data]
    return _ReplyContents(
        content=content,
        given=_find_given(_outputs_of(message)),
        agent=_text_under(data, "name")
        if message.format in ("openai", LANGCHAIN)
        else find_agent(data, message.format),
        model=_text_under(about, "model_name") or _text_under(about, "model"),
        provider=_text_under(about, "provider_name") or _text_under(about, "model_provider"),
        citations=_citations_in(noted),
    )


def _outputs_of(message: ForeignMessage) -> list[ToolCall]:
    """The calls that give the model's output."""
    parts = [part for part in message.parts if isinstance(part, CallPart)]
    if not any(gives_output(part, message.format) for part in parts):
        return []
    try:
        calls = calls_of(message)
    except (HoldfastError, LookupError, TypeError, AttributeError):
        return []  # The arguments cannot be read: the record has the text.
    return [call for call in calls if gives_output(CallPart(call.id, call.name), message.format)]


def _find_given(calls: Iterable[ToolCall]) -> dict[str, Json] | None:
    """The output of a reply, if it is not plain text. In some formats, arguments are text."""
    for call in calls:
        args = call.args
        if isinstance(args, str):
            try:
                args = msgspec.json.decode(args)
            except msgspec.DecodeError:
                continue
        if isinstance(args, dict):
            return args
    return None


def _text_under(data: Mapping[str, Json], name: str) -> str | None:
    found = data.get(name)
    return found if isinstance(found, str) and found else None


def _citations_in(noted: Iterable[Mapping[str, Json]]) -> list[Json]:
    """The provider's citations: `citations` of Anthropic and pydantic-ai, `annotations` of OpenAI."""
    lists = (data.get(name) for data in noted for name in ("citations", "annotations"))
    return [citation for found in lists if isinstance(found, list) for citation in found]


def _usage_of(data: Mapping[str, Json]) -> Usage:
    """The usage that pydantic-ai recorded. It leaves out zeros."""
    sent, given = data.get("input_tokens"), data.get("output_tokens")
    return Usage(
        input_tokens=sent if isinstance(sent, int) else 0,
        output_tokens=given if isinstance(given, int) else 0,
    )


def _time_of(data: Mapping[str, Json], otherwise: datetime) -> float:
    try:
        return datetime.fromisoformat(str(data.get("timestamp"))).timestamp()
    except ValueError:
        return otherwise.timestamp()


def _actions_of(given: Mapping[str, Json]) -> Record | None:
    """A moderator's decision; None if it was not valid, and was refused."""
    type, rollback, clear = given.get("type"), given.get("rollback", 1), given.get("clear_summaries", False)
    if isinstance(rollback, float) and rollback.is_integer():
        rollback = int(rollback)
    if type not in _DECISIONS or not isinstance(rollback, int) or not isinstance(clear, bool):
        return None
    back = type == "STEP_BACK"
    return {
        "type": type,
        "rollback": max(rollback, 1) if back else 0,
        "clear_summaries": clear if back else False,
    }


# -- as a file -----------------------------------------------------------------------------------------


class LogFile:
    """A log file that follows sessions: missing records are appended, a torn last line is cut off. Lines of
    other writers stay as they are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, tuple[LogReader, int]] = {}
        """The reader of each session and the last entry it has read, by uid: an id can be used again."""

    async def catch_up(self, session: Session) -> None:
        """Append the records that the file does not have yet. Durable on return."""
        await session.flush()
        journal = Journal(session._writer.engine.driver, session.id)
        await session._writer.engine.call(self._append, journal, copy(session.state.facts.head))

    def _append(self, journal: Journal, head: Head) -> None:
        try:
            files.make_tree(self._path.parent)
            with files.open_binary(self._path, "a+b") as file:
                if files.has_locks():  # Other processes may log other sessions to it.
                    files.lock(file.fileno())
                _repair(file)
                reader, after = self._open.pop(head.uid, (LogReader(head.session), 0))
                written = after or _find_written(file, journal, head)
                records: list[Record] = []
                for entry in journal.entries(after):
                    after = entry.seq
                    found = reader.read(entry)
                    if entry.seq > written:
                        records.extend(found)
                _write(file, records)
                self._open[head.uid] = reader, after
                if len(self._open) > _OPEN_MAX:
                    del self._open[next(iter(self._open))]
        except OSError as error:
            raise StoreFailed(
                f"the experiment log {self._path} cannot be written: {error.strerror}"
            ) from error


def _repair(file: BinaryIO) -> None:
    """Cut off a torn last line. Add the newline to a whole line that lacks it."""
    end = file.seek(0, os.SEEK_END)
    last = b""
    start = end
    while start and b"\n" not in last:
        size = min(start, 1 << 16)
        start -= size
        file.seek(start)
        last = file.read(size) + last
    last = last[last.rfind(b"\n") + 1 :]
    if not last:
        return
    try:
        _decode_object(last)
    except (msgspec.DecodeError, UnicodeDecodeError):
        file.truncate(end - len(last))
    else:
        file.write(b"\n")


def _find_written(file: BinaryIO, journal: Journal, head: Head) -> int:
    """The last entry of the session in the file. A deleted session may have had the same id."""
    last: tuple[int, float] | None = None
    file.seek(0)
    for line in file:
        last = _read_line(line, head.session) or last
    if last is None or not 0 < last[0] <= head.seq:
        return 0
    seq, at = last
    same = [entry.seq for entry in journal.entries(seq - 1, seq) if entry.at.timestamp() == at]
    return same[0] if same else 0


def _read_line(line: bytes, session: SessionId) -> tuple[int, float] | None:
    """The entry that a line is about, and its time; None if it is not a record of this session."""
    try:
        known = _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    about = known.metadata
    return (about.seq, known.t) if about is not None and about.session == session else None


class _About(Struct):
    session: str
    seq: int


class _LogLine(Struct):
    t: float
    metadata: _About | None


_decode_line = msgspec.json.Decoder(_LogLine).decode
_decode_object = msgspec.json.Decoder(dict[str, Json]).decode


def _write(file: BinaryIO, records: Iterable[Record]) -> None:
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    if lines:
        file.write(lines)
        file.flush()
        files.sync(file.fileno())

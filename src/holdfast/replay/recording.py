"""A recording: what a session's journal says about its course, as the input of a replay.

It holds what stands in for the world (messages of users, replies of the model, results of calls, answers of
people) and what a replay is compared with (which calls ran, which gate refused the others, how runs ended).
It is plain data, and can be written as JSON. Only the course that led to the present state counts: replies
that a rewind left behind are no part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..agents.output import is_nudge
from ..content.encode import read_given
from ..content.lazy import BlobReader, BlobSource, as_plain
from ..content.message_blocks import list_blocks
from ..core.budget import Budget, Usage
from ..core.entries import (
    ApprovalAsked,
    ApprovalGiven,
    ApprovalRefused,
    Body,
    BudgetChanged,
    CallRef,
    DelegateEnded,
    DelegateStarted,
    Entry,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunPaused,
    RunStarted,
    SessionForked,
    SessionRewound,
    ToolCompleted,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolRan,
    ToolRefused,
    ToolSettled,
    TranscriptCompacted,
)
from ..core.fold import RUN_ENDS, RunStatus, cast_of
from ..core.session_state import SessionState
from ..core.transcript_items import Item, ResultItem
from ..engine.journal import Journal
from ..errors import BadInput
from ..ids import session_id
from ..messages import (
    OPENAI_AGENTS,
    OWN,
    AnyMessage,
    ForeignMessage,
    Json,
    Media,
    Message,
    ResultPart,
    Text,
    ToolResult,
    calls_of,
    decode_message,
    foreign,
)
from ..store.store import Store

Course: TypeAlias = Literal["ran", "repeated", "told", "refused", "open"]
"""What became of a call. `ran`: its body was entered. `repeated`: it got the result of an earlier call.
`told`: it got no result of its own, because of a crash or a doubt that no replay has. `refused`: a gate or a
person refused it. `open`: the journal has no result."""


class MessageRecord(Struct, frozen=True, omit_defaults=True):
    """A message as JSON, in its format."""

    data: Json
    format: str = OWN

    @classmethod
    def of(cls, message: AnyMessage) -> MessageRecord:
        """The message, with its media read into memory."""
        if isinstance(message, ForeignMessage):
            return cls(message.data, message.format)
        blocks = tuple(map(_plain_block, message.blocks))
        plain = Message(role=message.role, blocks=blocks, agent=message.agent, metadata=message.metadata)
        return cls(msgspec.to_builtins(plain))

    def as_message(self) -> AnyMessage:
        """The message, without the id and the time of its entry."""
        if self.format == OWN:
            return decode_message(msgspec.json.encode(self.data))
        return foreign(self.data, self.format)


def _plain_block(block: Any) -> Any:
    if isinstance(block, ToolResult):
        content = block.content
        return ToolResult(
            call_id=block.call_id,
            content=content if isinstance(content, str) else tuple(map(as_plain, content)),
            is_error=block.is_error,
            value=block.value,
            replay_of=block.replay_of,
        )
    return as_plain(block)


class CallResult(Struct, frozen=True, omit_defaults=True):
    """The result of a call: text for the model, the same as data, and blocks if it was more than text."""

    text: str = ""
    value: Json = None
    is_error: bool = False
    parts: tuple[Text | Media, ...] = ()

    @classmethod
    def of(cls, result: ToolResult) -> CallResult:
        """The result as the transcript has it."""
        content = result.content
        if isinstance(content, str):
            return cls(content, result.value, result.is_error)
        parts = tuple(map(as_plain, content))
        text = "".join(part.text for part in parts if isinstance(part, Text))
        return cls(text, result.value, result.is_error, parts)


class CallRecord(Struct, kw_only=True, omit_defaults=True):
    """One call of a reply. `args` are those that the model gave, `checked` the same as the tool got them."""

    id: str
    tool: str
    args: Json = None
    checked: Json | UnsetType = UNSET
    course: Course = "open"
    gate: str = ""
    result: CallResult | None = None
    asked: bool = False
    """Whether a person had to approve it."""
    approved: bool | None = None
    corrected: Json | UnsetType = UNSET
    """The arguments that the person approved in the place of its own."""
    answer: str = ""
    again: bool = True
    """Of a repeated call: whether the earlier one is a part of the recording."""
    answer_part: Json = None
    """Under another framework: its result in the words of that framework."""


class Others(Struct, frozen=True, omit_defaults=True):
    """What a session had spent at some time, the replies of the recording aside: on delegates, on requests
    that failed, before a fork, on replies that a rewind left behind. What is reserved counts as spent."""

    usd: float = 0.0
    tokens: int = 0
    steps: int = 0

    def __add__(self, more: Others) -> Others:
        return Others(self.usd + more.usd, self.tokens + more.tokens, self.steps + more.steps)

    def __sub__(self, less: Others) -> Others:
        return Others(self.usd - less.usd, self.tokens - less.tokens, self.steps - less.steps)


class ReplyRecord(Struct, kw_only=True, omit_defaults=True):
    """One reply of the model. `others` is what else had been spent before the request; `caps` is the budget
    that the session had then."""

    said: MessageRecord
    usage: Usage = Usage()
    cost_usd: float = 0.0
    model: str | None = None
    calls: list[CallRecord] = []
    others: Others = Others()
    caps: Budget = Budget()


class RunEnd(Struct, frozen=True, omit_defaults=True):
    """How a run ended, when `replies` of the recording had been given. `others` is as that of a reply."""

    replies: int
    status: RunStatus
    reason: str = ""
    error: str = ""
    others: Others = Others()


class Turn(Struct, kw_only=True, omit_defaults=True):
    """What was given to the agent at once, and the replies that followed: `first` up to `last`, counted from
    zero, without `last`."""

    opening: list[MessageRecord] = []
    first: int = 0
    last: int = 0
    ends: list[RunEnd] = []
    joined: dict[int, list[MessageRecord]] = {}
    """Messages that came while it worked, by the number of replies before them."""

    @property
    def end(self) -> RunEnd | None:
        """How its last run ended; None if it was cut off."""
        found = self.ends[-1] if self.ends else None
        return found if found is not None and found.replies == self.last else None


class Recording(Struct, kw_only=True, omit_defaults=True):
    """The course of a session, from a version of it on."""

    session: str
    agent: str | None = None
    adapter: str = ""
    """The label of the framework that drove it; empty for holdfast's own agent, and for loops."""
    version: int = 0
    """The version that it begins with; 0 is the beginning of the session."""
    history: list[MessageRecord] = []
    turns: list[Turn] = []
    replies: list[ReplyRecord] = []
    instructions: str | None = None
    tools: dict[str, str] = {}
    """Digests of the instructions and the tools of the last run."""
    cast: list[str] = []
    """The members, if the session is a thread of several agents."""
    is_bare: bool = False
    """Whether it does not say which reply made which call."""


async def read_recording(store: Store, session: str, *, version: int | None = None) -> Recording:
    """The recording of a session, or of what came after a version of it. Reads, and takes no lease."""
    engine = store._engine
    id = session_id(session)
    return await engine.call(
        lambda: _RecordingReader(Journal(engine.driver, id, engine.blobs), version, engine.blobs).read()
    )


_ENDS: tuple[type[Body], ...] = tuple(RUN_ENDS)


class _RecordingReader:
    """Reads one journal."""

    def __init__(self, journal: Journal, version: int | None, blobs: BlobSource) -> None:
        self._journal, self._blobs = journal, blobs
        self._state = journal.fold()
        self._since = self._find_since(self._state, version)
        labels = self._state.facts.head.labels
        adapter = labels.get("agent_framework") or labels.get("adapter", "")
        self._recording = Recording(session=journal.session, version=version or 0, adapter=adapter)
        self._path: list[Entry] = []
        """Entries of the course: messages, replies, ends of runs."""
        self._asking = False
        self._joining: list[Entry] = []
        """Messages that came since the model was asked."""
        self._items: dict[int, Item] = {}
        self._results: dict[tuple[int, int], ResultItem] = {}
        self._calls: dict[tuple[int, int], CallRecord] = {}
        self._issued: dict[int, tuple[int, int]] = {}
        self._outcomes: dict[tuple[int, int], int] = {}
        """The entries with the results of calls whose results are no messages of ours."""
        self._bare: set[str] = set()
        """Calls of which the ledger knows nothing, by their ids."""
        self._errors: dict[tuple[int, int], str] = {}
        """Why calls failed that have no result."""
        self._caps: dict[int, Budget] = {}
        self._spent: dict[int, Others] = {}
        """What had been spent before each request, and at each end of a run."""

    @staticmethod
    def _find_since(state: SessionState, version: int | None) -> int:
        if not version:
            return 0
        found = state.get_checkpoint(version)
        if found not in state.path():
            raise BadInput(
                f"version {version} of session {state.facts.head.session!r} is not on the way to its present "
                "state: a rewind has left it behind. Fork the session there, and replay the fork"
            )
        return found.seq

    def read(self) -> Recording:
        """Read the journal once, and take the course from it."""
        self._collect_items(self._state)
        spending = _Spending()
        caps = Budget()
        for entry in self._journal.entries(said=False):
            body = entry.body
            if isinstance(body, BudgetChanged):
                caps = body.budget
            elif isinstance(body, SessionRewound):
                self._path = [one for one in self._path if one.seq <= body.seq]
            elif isinstance(body, TranscriptCompacted):
                self._collect_items(self._journal.fold(entry.seq - 1))
            elif isinstance(body, RunStarted):
                self._note_run(body)
            self._follow(entry)
            if isinstance(body, (ModelRequested, *_ENDS)):
                self._caps[entry.seq] = caps
                self._spent[entry.seq] = spending.total
            spending.apply(entry)
            self._note_call(entry)
        if self._since:
            before = self._journal.fold(self._since)
            self._recording.history = [MessageRecord.of(message) for message in before.transcript]
        self._read_path([entry for entry in self._path if entry.seq > self._since])
        return self._recording

    def _follow(self, entry: Entry) -> None:
        """Add an entry to the course. A message that came while the model was asked follows the reply."""
        body = entry.body
        if isinstance(body, ModelRequested):
            self._asking = True
        elif isinstance(body, MessageAdded) and body.inbox is not None and self._asking:
            self._joining.append(entry)
        elif isinstance(body, MessageAdded):
            self._path.append(entry)
        elif isinstance(body, (ModelReplied, *_ENDS)):
            joining = self._joining
            self._path += [entry, *joining] if isinstance(body, ModelReplied) else [*joining, entry]
            self._asking, self._joining = False, []

    def _collect_items(self, state: SessionState) -> None:
        for item in state.transcript_fold.items:
            if item.entry is None:  # Else it stands in the place of messages that were compacted.
                self._items.setdefault(item.seq, item)
            for index, result in (item.results or {}).items():
                if result.call.asked_by is not None:
                    self._results.setdefault((result.call.asked_by, index), result)

    def _note_run(self, body: RunStarted) -> None:
        found = self._recording
        found.agent = body.agent or found.agent
        found.instructions, found.tools = body.instructions, dict(body.tools)
        found.cast = list(cast_of(body.config))

    # -- the course ------------------------------------------------------------------------------------

    def _read_path(self, path: Sequence[Entry]) -> None:
        asks = any(isinstance(entry.body, ModelReplied) for entry in path)
        turn = Turn()
        ended, own = False, Others()
        found = self._recording
        for entry in path:
            body = entry.body
            if isinstance(body, _ENDS):
                turn.ends.append(_as_end(body, len(found.replies), self._spent[entry.seq] - own))
                ended = not isinstance(body, RunPaused)
                continue
            assert isinstance(body, MessageAdded | ModelReplied)
            is_reply = isinstance(body, ModelReplied) or (body.role == "assistant" and not asks)
            if body.role == "assistant" and not isinstance(body, ModelReplied):
                found.is_bare = found.is_bare or found.adapter == OPENAI_AGENTS
            if entry.seq not in self._items:
                continue  # It waits in the inbox still.
            item = self._items[entry.seq]
            if any(isinstance(part, ResultPart) for part in body.parts):
                # Of our own formats, results are read with their calls.
                self._note_answers(item.read(), found.replies[turn.first :])
                continue
            message = item.read()
            if isinstance(message, Message) and message.metadata.get("erased"):
                raise BadInput(
                    f"session {found.session!r} cannot be replayed: the {body.role}'s message at entry "
                    f"{entry.seq} was erased"
                )
            if is_nudge(message):
                continue
            if is_reply:
                reply = self._read_reply(item, body, own)
                own += Others(reply.cost_usd, reply.usage.tokens)
                found.replies.append(reply)
                turn.last, ended = len(found.replies), False
            elif turn.last == turn.first:
                turn.opening.append(MessageRecord.of(message))
            elif ended:
                found.turns.append(turn)
                turn = Turn(opening=[MessageRecord.of(message)], first=turn.last, last=turn.last)
                ended = False
            else:
                turn.joined.setdefault(turn.last, []).append(MessageRecord.of(message))
        if turn.opening or turn.last > turn.first:
            found.turns.append(turn)

    def _read_reply(self, item: Item, body: ModelReplied | MessageAdded, own: Others) -> ReplyRecord:
        message = item.read()
        reply = ReplyRecord(said=MessageRecord.of(message))
        if isinstance(body, ModelReplied):
            reply.usage, reply.cost_usd, reply.model = body.usage, body.cost_usd, body.model
            reply.others = self._spent.get(body.request or 0, own) - own
            reply.caps = self._caps.get(body.request or 0, Budget())
        for index, call in enumerate(calls_of(message)):
            place = (item.seq, index)
            known = self._calls.get(place) or CallRecord(id=call.id, tool=call.name)
            result = self._results.get(place)
            known.id, known.tool, known.args = call.id, call.name, call.args
            if place not in self._calls:
                self._bare.add(call.id)
            known.result = self._read_result(place) if result is None else CallResult.of(result.read())
            if known.course == "open" and known.result is not None:
                known.course = "told"
            reply.calls.append(known)
        return reply

    def _read_result(self, place: tuple[int, int]) -> CallResult | None:
        """The result of a call that is in the ledger alone."""
        outcome = self._outcomes.get(place)
        if outcome is None:
            error = self._errors.get(place)
            return None if error is None else CallResult(error, is_error=True)
        for entry in self._journal.entries(outcome - 1, outcome):
            if entry.content is not None:
                reader = BlobReader(self._journal.session, self._blobs, entry=outcome)
                given = read_given(entry.content, reader, whole=True)
                return CallResult(given.text, given.value, parts=given.parts)
        return None

    def _note_answers(self, message: AnyMessage, replies: Sequence[ReplyRecord]) -> None:
        """Take the results of calls from a message of another framework."""
        if not isinstance(message, ForeignMessage) or message.format == OWN:
            return
        for block in list_blocks(message):
            if not isinstance(block, ToolResult):
                continue
            calls = (call for reply in reversed(replies) for call in reply.calls)
            known = next((one for one in calls if one.id == block.call_id), None)
            if known is None:
                continue
            known.answer_part = _find_part(message.data, block.call_id)
            if known.result is None or known.result.is_error:
                known.result = CallResult.of(block)
            if known.id in self._bare:
                # The framework itself refused it, or answered it: the ledger knows nothing of it.
                is_refused = block.is_error or _is_retry(known.answer_part)
                known.course, known.gate = ("refused", "arguments") if is_refused else ("told", "")

    # -- calls -----------------------------------------------------------------------------------------

    def _note_call(self, entry: Entry) -> None:
        body = entry.body
        ref = getattr(body, "call", None)
        if not isinstance(ref, CallRef) or ref.asked_by is None:
            return
        place = (ref.asked_by, ref.index)
        call = self._calls.setdefault(place, CallRecord(id=ref.id, tool=""))
        if isinstance(body, ToolIssued | ToolRan):
            call.checked = UNSET if entry.details_erased else body.args
            call.course = "ran" if isinstance(body, ToolRan) else "open"
            self._issued[entry.seq] = place
            if isinstance(body, ToolRan):
                self._outcomes[place] = entry.seq
        elif isinstance(body, ToolCompleted):
            if body.issued is not None or body.replay_of is None:
                call.course = "ran"  # Of a delegate, the intent is in the journal of its root.
                self._outcomes[place] = entry.seq
            else:
                call.course = "repeated"
                origin = self._issued.get(body.original or 0)
                call.again = origin is not None and origin[0] > self._since and self._is_on_path(origin[0])
        elif isinstance(body, ToolFailed):
            call.course = "ran" if body.final else call.course
            if body.retry and self._recording.adapter == OPENAI_AGENTS:
                # That SDK checks arguments in the body.
                call.course, call.gate = "refused", "arguments"
            self._errors[place] = body.error
        elif isinstance(body, ToolRefused):
            crashed = place in self._issued.values()
            call.course = "told" if body.gate == "in_doubt" or crashed else "refused"
            call.gate = body.gate
        elif isinstance(body, ToolSettled):
            call.course = "ran" if body.verdict == "landed" else "told" if body.told else "open"
            if body.verdict == "landed":
                self._outcomes[place] = entry.seq
        elif isinstance(body, ToolInDoubt):
            call.course = "told" if body.told else "open"
        elif isinstance(body, ApprovalAsked):
            call.asked = True
        elif isinstance(body, ApprovalGiven):
            call.approved, call.corrected = True, body.args
        elif isinstance(body, ApprovalRefused):
            call.approved, call.answer = False, body.answer
            call.course, call.gate = "refused", "approval"

    def _is_on_path(self, reply: int) -> bool:
        return any(one.seq == reply for one in self._path)


def _find_part(data: Json, call: str) -> Json:
    """The part of a message that answers the call; None if it has no parts."""
    parts: Any = data.get("parts") if isinstance(data, dict) else None
    if not isinstance(parts, list):
        return None
    found = (one for one in parts if isinstance(one, dict) and one.get("tool_call_id") == call)
    return next((one for one in found if one.get("part_kind") in ("tool-return", "retry-prompt")), None)


def _is_retry(part: Json) -> bool:
    """Whether the framework asked the model for another call."""
    known = part if isinstance(part, dict) else {}
    return known.get("part_kind") == "retry-prompt" or known.get("outcome") == "retried"


def _as_end(body: Any, replies: int, others: Others) -> RunEnd:
    status, _ = RUN_ENDS[type(body)]
    return RunEnd(replies, status, getattr(body, "reason", ""), getattr(body, "error", ""), others)


class _Spending:
    """What a session has spent, entry by entry; of steps, those of delegates."""

    def __init__(self) -> None:
        self._own = Others()
        self._open: dict[int, Others] = {}
        self._delegates: dict[str, Others] = {}

    @property
    def total(self) -> Others:
        """All of it."""
        return sum([*self._open.values(), *self._delegates.values()], self._own)

    def apply(self, entry: Entry) -> None:
        """Count one entry."""
        body = entry.body
        if isinstance(body, SessionForked):
            self._own, self._open, self._delegates = Others(), {}, {}
        elif isinstance(body, ModelRequested):
            self._open[entry.seq] = Others(body.reserved.usd, body.reserved.tokens)
        elif isinstance(body, ModelReplied | ModelFailed):
            self._open.pop(body.request or 0, None)
            self._own += Others(body.cost_usd, body.usage.tokens)
        elif isinstance(body, DelegateStarted):
            held = Others(body.reserved.usd, body.reserved.tokens, body.steps)
            self._delegates[body.session] = self._delegates.get(body.session, Others()) + held
        elif isinstance(body, DelegateEnded):
            self._delegates[body.session] = Others(body.cost_usd, body.usage.tokens, body.steps)


def check_driver(recording: Recording, adapter: str) -> None:
    """Refuse a recording that agents of this framework have not made; empty for `holdfast.Agent`."""
    name = recording.session
    if recording.cast:
        raise BadInput(f"session {name!r} is a thread of several agents, and cannot be replayed")
    if recording.is_bare:
        raise BadInput(
            f"session {name!r} cannot be replayed: it does not say which reply made which call. Either "
            "DurableRunner has not run it, or the items of a run were replaced, by a guardrail, a filter or "
            "a compaction"
        )
    if recording.adapter != adapter:
        was = recording.adapter or "a holdfast.Agent"
        raise BadInput(
            f"session {name!r} was driven by {was}, and not by {adapter or 'a holdfast.Agent'}: it cannot be "
            "replayed with this agent"
        )


_decode = msgspec.json.Decoder(Recording).decode


def load_recording(data: str) -> Recording:
    """The recording that `dump_recording` wrote."""
    return _decode(data)


def dump_recording(recording: Recording) -> str:
    """The recording as JSON, for `replay_recording`."""
    return msgspec.json.encode(recording).decode()

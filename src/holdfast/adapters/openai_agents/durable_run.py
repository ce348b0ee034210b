"""One run of an agent in its session: recorded replies are replayed, new ones are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from agents import (
    FunctionTool,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelResponse,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    custom_span,
)
from agents.items import ToolApprovalItem

from ...agents.prices import find_cost_usd
from ...content.encode import encode_content
from ...core.entries import ApprovalAsked, ApprovalRefused, Body, CallRef, MessageAdded, SessionRewound
from ...engine.blob_cache import BlobCache
from ...errors import BadInput
from ...messages import OPENAI_AGENTS, CallPart, ForeignMessage, Json, role_of_item
from ...reprs import describe_error
from ...session.run import Request, Run
from ...session.session import Session
from ...system.aio import run_to_end
from ...tools.canonical import fingerprint
from ...tools.schema import keep_schema
from ...tools.waiting import find_waiting_calls
from ..foreign_calls import CALLER, name_call
from ..run_errors import RunWaits
from .context import EFFECT
from .items import InputItem, as_message, group, pack, pack_light
from .recorded_run import OVER, RecordedRun, RunStart, key_of, spans_until
from .replies import ReplyOnRecord, as_recorded, usage_of
from .tool_calls import RunTools, read_args

ENDED: Final = (
    MaxTurnsExceeded,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ModelBehaviorError,
)
"""Errors that end a run for good: with the same replies, it would fail again."""


class RunRecord:
    """Replays what its session has of a run, and records the rest."""

    def __init__(
        self,
        session: Session,
        run: Run,
        tools: RunTools,
        beginning: RunStart,
        recorded: RecordedRun,
        history: Sequence[InputItem],
    ) -> None:
        """`history` is what the transcript held when the run began."""
        self.session, self.run, self.tools = session, run, tools
        self.beginning, self._recorded = beginning, recorded
        said = len(history) - beginning.said
        self.history = list(history[:said])
        """The history that the run is given. Input of the run that it ends with is given as input."""
        self._input = list(history[said:])
        self._claims = Counter(key_of(item) for item in [*self._input, *recorded.items])
        """What is on record of the run, and the SDK has not added yet."""
        self._keys = Counter(self._claims)
        self.saved: list[InputItem] = []
        """The items that the SDK has added in this attempt."""
        self.given = 0
        """How many replies the SDK was given so far. One that is on record and did not arrive comes next."""
        self.agent: str | None = None
        """The agent whose model is asked."""
        self._is_handed_on = False
        """Whether the reply of the request that the SDK makes now was given to it."""
        self.resumed_at: int | None = None
        """With a `RunState`: how many replies it holds."""
        self._held = set[str]()
        """With a `RunState`: the keys of its items."""
        self._is_replaced = False
        self._request_error: Exception | None = None
        """Why the last request to a model has failed."""
        self._delegates = Counter[str]()
        self.plain_agents = set[str]()
        """The agents that ran in its tools without a record."""

    @property
    def root_run(self) -> str:
        """The first of the runs that this one continues, or this one."""
        return self.beginning.root_run or self.run.id

    def count_delegate(self, agent: str) -> int:
        """How many runs of this agent were begun in this run outside of its tools, this one included."""
        self._delegates[agent] += 1
        return self._delegates[agent]

    # -- replies -------------------------------------------------------------------------------------

    @property
    def is_replaying(self) -> bool:
        """Whether the next reply is on record."""
        return self.given < len(self._recorded.replies)

    def resume_at(self, calls: Sequence[str], replies: int, held: Sequence[InputItem]) -> None:
        """Go on from a `RunState` that holds this many replies, the last of which makes these calls, and
        these items, which the SDK has saved."""
        there = self._recorded.replies
        if replies > len(there) or (replies and set(calls) - set(there[replies - 1].calls)):
            raise BadInput(
                f"session {self.session.id!r}: this RunState is not of its last run. Pass the session, or "
                "the run_key, of the run that was interrupted"
            )
        self.given = self.resumed_at = replies
        self._held = {key_of(item) for item in held}

    async def next_reply(self) -> ReplyOnRecord | None:
        """The next reply, if it is on record; None if the model must be asked."""
        await self.stop_if_waiting()
        if self._is_handed_on:
            self.given -= 1  # It did not arrive: this is another attempt of the same request.
        if not self.is_replaying:
            if self.beginning.is_over:
                raise BadInput(
                    f"session {self.session.id!r}: run {self.beginning.root_run} has ended, and this agent "
                    "asks for more than it had. Use the agent that the run had, or another run_key"
                )
            return None
        reply = self.hand_on()
        with custom_span("holdfast replay", {"entry": reply.seq, "replayed": True}):
            return reply

    @asynccontextmanager
    async def asking(self, model: str | None) -> AsyncIterator[RecordedRequest]:
        """Around a request to the model."""
        try:
            async with self.run.request(model=model) as request:
                yield RecordedRequest(self, request, model)
        except Exception as error:
            self._request_error = error
            raise

    def note_reply(self, data: Json) -> None:
        """A reply was recorded. It counts as given when it is handed on."""
        items = reversed(self.session.state.transcript_fold.items)
        item = next(one for one in items if one.role == "assistant")
        calls = tuple(part.id for part in item.parts if isinstance(part, CallPart))
        reply = ReplyOnRecord(item.seq, calls, data)
        self._recorded.replies.append(reply)
        self._note(reply.items)

    def hand_on(self) -> ReplyOnRecord:
        """The next recorded reply, which the SDK is given now."""
        reply = self._recorded.replies[self.given]
        self.given += 1
        if not self._is_handed_on:
            self.tools.used.add(reply.usage)
        self._is_handed_on = True
        return reply

    def begin_request(self, agent: str) -> None:
        """The SDK begins a request to the model of an agent: it has the replies before it."""
        self.agent, self._is_handed_on = agent, False

    def _note(self, items: Sequence[InputItem]) -> None:
        self._recorded.items += items
        keys = [key_of(item) for item in items]
        self._claims.update(keys)
        self._keys.update(keys)

    # -- items ---------------------------------------------------------------------------------------

    async def save(self, items: Sequence[InputItem]) -> None:
        """Add what the SDK adds to the session, as far as it is not on record."""
        await self.stop_if_waiting()
        self.saved += items
        fresh = [item for item in items if not self._claim(item)]
        if fresh and not self.beginning.is_over:
            await self._add(fresh)
            for item in fresh:
                self._claim(item)
            self._close_questions(fresh)
        if self.session.continuable and not self.beginning.is_over:
            self.session._writer.take_checkpoint()

    def _claim(self, item: InputItem) -> bool:
        key = key_of(item)
        if not self._claims[key]:
            return False
        self._claims[key] -= 1
        return True

    async def _add(self, items: Sequence[InputItem]) -> None:
        entries = await self._make_entries(items)
        self.session._writer.record_all(entries)
        self._note(items)

    async def _make_entries(self, items: Sequence[InputItem]) -> list[tuple[Body, bytes | None]]:
        return [await self._make_entry(as_message(one)) for one in group(items)]

    async def _make_entry(self, message: ForeignMessage) -> tuple[Body, bytes]:
        engine = self.session._writer.engine
        packed = pack_light(message, engine.blobs.sizes)
        content = await engine.call_home(_pack, engine.blobs, message) if packed is None else packed.content
        return MessageAdded(role=message.role, parts=message.parts, format=message.format), content

    async def replace(self, items: Sequence[InputItem]) -> None:
        """Put these items in the place of the whole transcript, in one commit."""
        self._is_replaced = True
        self.history, self.saved = list(items), []
        if self.beginning.is_over:
            return
        entries = await self._make_entries(items)
        state = self.session.state.facts.values
        gone = SessionRewound(version=0, seq=0, transcript=(), state=state)
        self.session._writer.record_all([(gone, None), *entries, *self._list_arrived()])
        self.session._writer.take_checkpoint()
        await self.session.flush()

    async def _correct(self) -> None:
        """Have the transcript hold what the SDK saved: it saves nothing of a reply that a guardrail refused,
        or of a handoff whose filter removes tools."""
        added = self._list_saved()
        whole = self._keys == Counter(key_of(item) for item in added)
        if whole or self._is_replaced or self.beginning.is_over:
            return
        session, since = self.session, self.beginning.since
        version, seq = 0, 0
        for one in reversed(session.state.path()):
            if one.seq <= since:
                version, seq = one.version, one.seq
                break
        rewound = SessionRewound(
            version=version,
            seq=seq,
            transcript=spans_until(session.state, seq),
            state=session.state.facts.values,
        )
        between: list[tuple[Body, bytes | None]] = [
            (MessageAdded(role=item.role, parts=item.parts, format=item.format), item.encode())
            for item in session.state.transcript_fold.items
            if seq < item.seq <= since
        ]
        kept = await self._make_entries(added[self.beginning.said :])
        session._writer.record_all([(rewound, None), *between, *kept, *self._list_arrived()])
        self._is_replaced = True

    def _list_arrived(self) -> list[tuple[Body, bytes | None]]:
        """What was sent to the session since the run began, and no model was shown: it is not left behind."""
        fold = self.session.state.transcript_fold
        return [
            (MessageAdded(role=item.role, parts=item.parts, format=item.format), item.encode())
            for item in (*fold.items, *fold.queued)
            if item.seq > self.beginning.since
            and item.results is None
            # One that was added anew here has no number any more.
            and (item.inbox is not None or item.format != OPENAI_AGENTS)
        ]

    def _list_saved(self) -> list[InputItem]:
        """The items of the run that the SDK has saved, in this attempt or before the run was paused."""
        if self.resumed_at is None:
            return self.saved
        recorded = [*self._input, *self._recorded.items]
        known = self._held | {key_of(item) for item in self.saved}
        return [
            item for item in recorded if role_of_item(item) in ("user", "system") or key_of(item) in known
        ]

    # -- calls ---------------------------------------------------------------------------------------

    def refer_to(self, call: str) -> CallRef:
        """The reference of a call in the journal, by the SDK's id of it."""
        replies = self._recorded.replies[: max(self.given, self.resumed_at or 0)]
        for reply in reversed(replies):
            if call in reply.calls:
                return reply.refer_to(call)
        return name_call(replies[-1].seq if replies else 0, (), call)

    def list_tools_on_record(self) -> set[str]:
        """The tools of the calls of the next recorded reply that were begun; none if the model is asked."""
        if not self.is_replaying:
            return set()
        reply = self._recorded.replies[self.given]
        return {
            item["name"]
            for item in reply.items
            if item.get("type") == "function_call"
            and self.tools.is_on_record(reply.refer_to(item["call_id"]))
        }

    def owns(self, call: str) -> bool:
        """Whether one of the replies makes this call."""
        return any(call in reply.calls for reply in self._recorded.replies)

    def find_output(self, call: str) -> Json:
        """The output that the SDK added for a call; None if there is none yet."""
        return self._recorded.find_output(call)

    async def ask_for(self, item: ToolApprovalItem) -> None:
        """Record that a call waits for the approval of a person, unless it was asked before."""
        call, tool = str(item.call_id), str(item.name)
        ref = self.refer_to(call)
        if not self.owns(call) or self.tools.find_question(ref) is not None:
            return
        args = read_args(item.arguments or "")
        self.session._writer.record(
            ApprovalAsked(
                call=ref,
                tool=tool,
                args=args,
                fingerprint=fingerprint(tool, args),
                why=f"{tool} needs approval",
                schema=_find_schema(item, tool),
            )
        )

    def _close_questions(self, items: Sequence[InputItem]) -> None:
        """What was asked, and has an output without having been run, was rejected by way of a `RunState`."""
        effects = self.session.state.facts.effects
        if not effects.questions:
            return
        for item in items:
            call = item.get("call_id")
            if item.get("type") != "function_call_output" or not isinstance(call, str):
                continue
            asked = effects.find_question(self.refer_to(call))
            if asked is not None and asked.approved is None:
                refused = ApprovalRefused(call=asked.call, asked=asked.asked, by=CALLER)
                self.session._writer.record(refused, content=encode_content(str(item.get("output"))))

    # -- the end -------------------------------------------------------------------------------------

    async def stop_if_waiting(self) -> None:
        """Raise `RunWaits` if a call is in doubt, or if an agent in a tool waits."""
        if self.tools.below is not None:
            raise self.tools.below
        if self.tools.waits:
            waiting = await find_waiting_calls(self.session, self.tools.waits)
            raise RunWaits(self.session.id, waiting, again="DurableRunner.run(…)")

    async def end(self, interruptions: Sequence[ToolApprovalItem]) -> None:
        """Record how the run ended."""
        await self.stop_if_waiting()
        if interruptions:
            for item in interruptions:
                await self.ask_for(item)
            self.run.pause("approval")
            return
        await self._correct()
        if self.session.continuable:
            self.session._writer.take_checkpoint()
        self.run.complete()

    async def fail(self, error: BaseException) -> bool:
        """Record why it did not end: that decides whether the next run continues it. False: as any error."""
        if isinstance(error, RunWaits):
            self.run.pause(", ".join(sorted({one.kind for one in error.waiting})) or "approval")
            return True
        # A request that failed may be made again. One that was cut off, by a guardrail say, has not failed.
        if self.session.is_lost or error is self._request_error or not isinstance(error, ENDED):
            return False
        await self._correct()
        self.run.fail(f"{OVER}: {type(error).__name__}", describe_error(error))
        return True


class RecordedRequest:
    """A request to the model that was recorded, until its reply is."""

    def __init__(self, recorder: RunRecord, request: Request, model: str | None) -> None:
        self._recorder, self._request, self._model = recorder, request, model

    async def end(self, response: ModelResponse) -> None:
        """Record the reply, and hand it on. Durable on return.

        A caller that is cancelled meanwhile finds it on record when it asks again: the model is not asked.
        """
        agent = self._recorder.agent
        message, usage = as_recorded(response, agent=agent, model=self._model), usage_of(response.usage)
        cost_usd = max(find_cost_usd(f"openai:{self._model}", usage) or 0.0, 0.0) if self._model else 0.0

        async def record() -> None:
            await self._request.reply(message, usage=usage, cost_usd=cost_usd, model=self._model)
            self._recorder.note_reply(message.data)

        await run_to_end(record)
        self._recorder.hand_on()


def _pack(blobs: BlobCache, message: ForeignMessage) -> bytes:
    packed = pack(message, blobs.sizes)
    blobs.keep(packed.pieces)
    return packed.content


class Driving:
    """A durable run around the caller: from its call on, its recorder from the moment that it is open."""

    def __init__(self) -> None:
        self.recorder: RunRecord | None = None


driving: ContextVar[Driving | None] = ContextVar("holdfast_openai_agents_run", default=None)


def find_recorder() -> RunRecord | None:
    """The recorder of the durable run that the SDK drives around the caller.

    None in the tools of that run: what they run is no part of it, unless it is a durable run itself.
    """
    found = driving.get()
    recorder = None if found is None else found.recorder
    effect = EFFECT.find()
    if recorder is None or (effect is not None and effect.session is recorder.session):
        return None
    return recorder


def find_around() -> RunRecord | None:
    """The recorder of the innermost durable run around the caller, in one of its tools or not."""
    found = driving.get()
    return None if found is None else found.recorder


def _find_schema(item: ToolApprovalItem, name: str) -> Json:
    """The schema of the tool's arguments, as far as the agent has the tool itself."""
    tools = [tool for tool in getattr(item.agent, "tools", ()) if isinstance(tool, FunctionTool)]
    return next((keep_schema(tool.params_json_schema) for tool in tools if tool.name == name), None)

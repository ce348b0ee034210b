"""One run of an agent in its session: recorded replies are replayed, new ones are recorded."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from pydantic_ai import RunContext
from pydantic_ai.exceptions import SkipModelRequest, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage

from ...agents.prices import find_cost_usd
from ...content.encode import encode_content
from ...core.budget import Usage
from ...core.entries import ApprovalRefused, CallRef
from ...core.fold import RunInfo
from ...formats.pydantic_ai import FORMAT
from ...messages import ForeignMessage, Json
from ...reprs import describe_error
from ...session.run import Request, Run
from ...session.session import Session
from ...tools.waiting import find_waiting, find_waiting_calls
from ..foreign_calls import CALLER
from ..message_overlap import overlap
from ..run_errors import RunWaits
from .history import (
    add,
    as_foreign,
    dump,
    essence,
    essences,
    is_response,
    opening_of,
)
from .media_urls import Links
from .replay import RecordedReplies, adopt, reply_of
from .resume import go_back
from .tool_calls import Tools

log = logging.getLogger("holdfast")
AGAIN = "agent.run(…)"
"""What continues a run."""
NO_OUTPUT = "no_output"
"""Why a run failed that would fail in the same way if it were given the same replies again."""


class Beginning(Struct, frozen=True):
    """Where a run begins: after the entry `since`; `opening` identifies its prompt and history."""

    since: int
    opening: str
    root_run: str | None
    """The first of the runs that this one continues."""

    @property
    def config(self) -> Json:
        """What the journal keeps of it."""
        return {"pydantic_ai": {"since": self.since, "opening": self.opening, "drive": self.root_run}}


async def begin(session: Session, prompt: Any, history: Sequence[ModelMessage], *, once: bool) -> Beginning:
    """Find out whether this continues the last run; record the given history if it does not."""
    given = essences(history)
    opening = opening_of(prompt, given)
    before = _find_last(session)
    if before is not None and _goes_on(before, opening, once=once):
        kept = before.config["pydantic_ai"]
        return Beginning(kept["since"], opening, kept["drive"] or before.run)
    shared = _count_known(session, given)
    if not session.continuable and not (given and shared == len(given)):
        await _leave_behind(session, before)
        shared = _count_known(session, given)
    if history[shared:]:
        await add(session, history[shared:])
        if session.continuable:
            session._writer.take_checkpoint()
    return Beginning(session.state.seq, opening, None)


def _find_last(session: Session) -> RunInfo | None:
    """The last run of the session, runs inside others aside."""
    runs = session.state.facts.runs
    outer = (one for one in reversed(runs.values()) if one.parent is None or one.parent.run not in runs)
    return next(outer, None)


def _goes_on(before: RunInfo, opening: str, *, once: bool) -> bool:
    kept = before.config.get("pydantic_ai") if isinstance(before.config, dict) else None
    if kept is None or kept["opening"] != opening:
        return False
    if before.status == "completed":
        return once
    return not (before.status == "failed" and before.reason == NO_OUTPUT)


def _count_known(session: Session, given: Sequence[str]) -> int:
    """How many messages of the history the transcript ends with."""
    if not given:
        return 0
    known = [
        essence(message.data)
        for message in session.transcript
        if isinstance(message, ForeignMessage) and message.format == FORMAT
    ]
    return overlap(known, given)


async def _leave_behind(session: Session, before: RunInfo | None) -> None:
    """Go back before an unfinished step, which stays in the journal: a new run cannot begin inside it."""
    version = await go_back(session)
    run = "the last run" if before is None else f"run {before.run}"
    log.warning(
        "session %s: %s was cut off, and began with another prompt: it is abandoned, and the session "
        "continues from version %d",
        session.id,
        run,
        version,
    )


class RunRecorder:
    """Replays what its session has of a run, and records the rest."""

    def __init__(
        self, session: Session, run: Run, tools: Tools, recorded: RecordedReplies, links: Links | None
    ) -> None:
        self.session, self.run, self.tools = session, run, tools
        self._recorded, self._links = recorded, links
        self._replies = 0
        """How many replies this run was given so far."""
        self._last = self._recorded.before
        self._asking: Asking | None = None

    @classmethod
    async def begin(
        cls, session: Session, run: Run, tools: Tools, beginning: Beginning, links: Links | None = None
    ) -> RunRecorder:
        """Read what is on record, blobs included. With `links`, the model is sent URLs of files."""
        items = list(session.state.transcript_fold.items)
        recorded = await session._writer.engine.call(RecordedReplies, items, beginning.since)
        return cls(session, run, tools, recorded, links)

    # -- asking the model ----------------------------------------------------------------------------

    async def ask(self, ctx: RunContext[Any], request: ModelRequestContext, handler: Any) -> ModelResponse:
        """The recorded reply, or the model's, which is durable on return."""
        await self.stop_if_waiting()
        if self._replies < len(self._recorded.replies):
            return self._give_again(ctx)
        self._asking = asking = Asking(self, ctx, request)
        skipped: SkipModelRequest | None = None
        try:
            try:
                response: ModelResponse = await handler(request)
            except SkipModelRequest as skip:
                skipped, response = skip, skip.response
            await asking.begin()
            await asking.end(response)
        except BaseException as error:
            await asking.fail(error)
            raise
        finally:
            self._asking = None
        if skipped is not None:
            raise skipped
        return response

    def _give_again(self, ctx: RunContext[Any]) -> ModelResponse:
        number = self._replies
        said = self._recorded.said_after(number)
        self._replies += 1
        self._last = self._recorded.get_reply(self._replies)
        response = self._last.message
        assert response is not None
        for message in (*said, response):
            adopt(message, ctx)
        # As they were first sent: built anew they would be dated anew, at the least.
        ctx.messages[-1:] = said
        return response

    def wrap(self, model: Model) -> Model:
        """The model, wrapped so that the recorder knows when a request is sent, and what it holds."""
        return model if self._asking is None else wrap_model(model, self._asking.begin, self._links)

    async def note(self, ctx: RunContext[Any]) -> None:
        """Record what is to be sent and was not recorded yet."""
        said = _after_last_response(ctx.messages)
        if self._replies == 0:
            said = said[-1:]
        if self._recorded.has_said(self._replies) or not said:
            return
        if self._replies == 0 and self._is_known(said[0]):
            return  # The history that the caller passed ends with it.
        await self._add(said)

    def _is_known(self, message: ModelMessage) -> bool:
        items = self.session.state.transcript_fold.items
        last = items[-1].read() if items else None
        if not isinstance(last, ForeignMessage) or last.format != FORMAT or last.role == "assistant":
            return False
        return essence(dump(message)) == essence(last.data)

    async def _add(self, said: Sequence[ModelMessage]) -> None:
        await add(self.session, said)
        self._close_questions(said)

    def _close_questions(self, said: Sequence[ModelMessage]) -> None:
        """What was asked and is denied now was answered by way of pydantic-ai's deferred results."""
        effects = self.session.state.facts.effects
        if not effects.questions:
            return
        parts = [part for message in said for part in message.parts if isinstance(part, ToolReturnPart)]
        for part in parts:
            asked = effects.find_question(self._last.refer_to(part.tool_call_id))
            if part.outcome == "denied" and asked is not None and asked.approved is None:
                refused = ApprovalRefused(call=asked.call, asked=asked.asked, by=CALLER)
                self.session._writer.record(refused, content=encode_content(part.model_response_str()))

    @property
    def has_results(self) -> bool:
        """Whether a step ends here: there was a reply, and its calls have their results."""
        return self._replies > 0 and self.session.continuable

    def note_reply(self) -> None:
        """The reply was recorded."""
        items = reversed(self.session.state.transcript_fold.items)
        self._replies += 1
        self._last = reply_of(next(item for item in items if item.role == "assistant"))

    # -- calls ---------------------------------------------------------------------------------------

    def refer_to(self, call: ToolCallPart) -> CallRef:
        """The reference of a call of the last reply in the journal."""
        return self._last.refer_to(call.tool_call_id)

    def list_tools_on_record(self) -> set[str]:
        """The tools of the calls of the next recorded reply that were begun; none if the model is asked."""
        if self._replies >= len(self._recorded.replies):
            return set()
        reply = self._recorded.replies[self._replies]
        calls = () if reply.message is None else reply.message.tool_calls
        return {
            call.tool_name for call in calls if self.tools.is_on_record(reply.refer_to(call.tool_call_id))
        }

    def find_answer(self, call: ToolCallPart) -> Any:
        """What the call gave, if what came of the whole step was recorded."""
        return self._recorded.find_answer(self._replies, call.tool_call_id)

    # -- the end -------------------------------------------------------------------------------------

    async def stop_if_waiting(self) -> None:
        """Raise `RunWaits` if a call is in doubt, or if an agent in a tool waits."""
        if self.tools.below is not None:
            raise self.tools.below
        if self.tools.in_doubt:
            waiting = await find_waiting(self.session)
            calls = await find_waiting_calls(self.session, self.tools.in_doubt)
            more = tuple(one for one in calls if one not in waiting)
            raise RunWaits(self.session.id, waiting + more, again=AGAIN)

    async def end(self, result: AgentRunResult[Any]) -> None:
        """Record how the run ended."""
        if isinstance(result.output, DeferredToolRequests):
            waiting = await find_waiting(self.session)
            self.run.pause(", ".join(sorted({one.kind for one in waiting})) or "external results")
            return
        said = _after_last_response(result.all_messages())
        if said and not self._recorded.has_said(self._replies):
            await self._add(said)
        if self.session.continuable:
            self.session._writer.take_checkpoint()
        self.run.complete()

    def fail(self, error: RunWaits | UnexpectedModelBehavior) -> None:
        """Record why it did not end: that decides whether the next run continues it."""
        if isinstance(error, RunWaits):
            self.run.pause(", ".join(sorted({one.kind for one in error.waiting})))
        else:
            self.run.fail(NO_OUTPUT, describe_error(error))


class Asking:
    """A request to the model, from what is sent to what comes back."""

    def __init__(self, recorder: RunRecorder, ctx: RunContext[Any], request: ModelRequestContext) -> None:
        self._recorder, self._ctx, self._context = recorder, ctx, request
        self._request: Request | None = None

    async def begin(self) -> None:
        """Record what is sent, now that it is known, and the request itself."""
        if self._request is not None:
            return
        recorder = self._recorder
        await recorder.note(self._ctx)
        if recorder.has_results:
            recorder.session._writer.take_checkpoint()
        self._request = recorder.run.request(model=_name_of(self._context.model))
        await self._request.__aenter__()

    async def end(self, response: ModelResponse) -> None:
        """Record the reply."""
        assert self._request is not None
        self._sign(response)
        usage, model = _usage_of(response), response.model_name
        cost_usd = None
        if response.provider_name is not None:
            cost_usd = find_cost_usd(f"{response.provider_name}:{model}", usage)
        await self._request.reply(
            as_foreign(response),
            usage=usage.without_negatives(),
            cost_usd=max(cost_usd or 0.0, 0.0),
            model=model,
        )
        await self._request.__aexit__(None, None, None)
        self._recorder.note_reply()

    def _sign(self, response: ModelResponse) -> None:
        """What pydantic-ai notes on a reply when it joins the history, so that it is kept, too."""
        if response.run_id is None:
            adopt(response, self._ctx)
        newer: Any = response
        if getattr(newer, "model_id", "") is None:
            newer.model_id = self._context.model_id or self._context.model.model_id
        if response.workspace_ref is None:
            response.workspace_ref = self._ctx.workspace.ref

    async def fail(self, error: BaseException) -> None:
        """No reply came back."""
        if self._request is not None:
            await self._request.__aexit__(type(error), error, error.__traceback__)


def wrap_model(model: Model, begin: Callable[[], Awaitable[None]], links: Links | None) -> RecordingModel:
    """Wrap the model. If it cannot stream, the wrapper cannot either, and has its class name for the error of
    pydantic-ai."""
    if type(model).request_stream is not Model.request_stream:
        return RecordingModel(model, begin, links)
    made = type(type(model).__name__, (RecordingModel,), {"request_stream": Model.request_stream})
    wrapped = made(model, begin, links)
    assert isinstance(wrapped, RecordingModel)
    return wrapped


class RecordingModel(WrapperModel):
    """The model of a durable run. pydantic-ai enters it once everything that is sent is known."""

    def __init__(self, wrapped: Model, begin: Callable[[], Awaitable[None]], links: Links | None) -> None:
        super().__init__(wrapped)
        self._begin, self._links = begin, links

    async def __aenter__(self) -> RecordingModel:
        await self._begin()
        await super().__aenter__()
        return self

    async def _show(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """The messages as the model is sent them; they were recorded with their bytes."""
        return messages if self._links is None else await self._links.put_in(messages)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await super().request(await self._show(messages), model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        shown = await self._show(messages)
        async with super().request_stream(
            shown, model_settings, model_request_parameters, run_context
        ) as stream:
            yield stream

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        shown = await self._show(messages)
        return await super().count_tokens(shown, model_settings, model_request_parameters)


def _after_last_response(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for message in reversed(messages):
        if is_response(message):
            break
        found.append(message)
    return found[::-1]


def _name_of(model: Model) -> str | None:
    try:
        return f"{model.system}:{model.model_name}"
    except NotImplementedError:
        return None  # It stands for several.


def _usage_of(response: ModelResponse) -> Usage:
    usage = response.usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )

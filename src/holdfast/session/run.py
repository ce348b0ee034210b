"""Runs (one drive of an agent's loop each) and their requests to a model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio
import msgspec

from ..core.budget import Reservation, Usage
from ..core.codec import check
from ..core.entries import (
    Body,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    Parent,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunStarted,
)
from ..core.fold import ERROR
from ..drivers.contract import ClaimChange, Claimed
from ..errors import BadInput, BudgetSpent, HoldfastError, ModelError, RunExists
from ..formats.sdk_objects import read_given
from ..ids import RunId, SessionId, fresh_run_id, run_id
from ..messages import ForeignMessage, Json, Message, refuse_unfaithful, shape_of
from ..reprs import describe_error, name_of
from ..system.clock import boot_s
from ..telemetry import active, look

if TYPE_CHECKING:
    from ..core.fold import RunInfo
    from ..telemetry.spans import ChatSpan, RunSpan
    from .session import Session


class RunControl(Protocol):
    """A worker's say in the runs of a session that it drives."""

    @property
    def is_stopping(self) -> bool:
        """True if the run should stop at the end of its step, so that another worker continues it."""

    def end(self, end: Body, error: BaseException | None) -> Body | None:
        """Choose the entry that ends a run. None records no end: another worker continues the run."""


class _Current(NamedTuple):
    session: SessionId
    run: RunId
    around: _Current | None


_current: ContextVar[_Current | None] = ContextVar("holdfast_run", default=None)


def current_run(session: SessionId) -> RunId | None:
    """Find the innermost run of this session around the caller; runs of delegates may lie between."""
    current = _current.get()
    while current is not None and current.session != session:
        current = current.around
    return None if current is None else current.run


class Run:
    """A run: `async with session.run(…) as run`. Leaving the block records its end."""

    def __init__(
        self,
        session: Session,
        *,
        agent: str | None,
        run_id: str | None,
        parent: str | Parent | None,
        model: str | None,
        instructions: str | None,
        tools: Mapping[str, str],
        config: Json,
        resumes: bool = False,
        loop: str | None = None,
    ) -> None:
        """`resumes`: the run goes on without a new message. `loop`: which of our loops drives it."""
        refuse_unfaithful(config, "config")
        self._session = session
        self._explicit = run_id
        self._parent = parent
        self._agent, self._model, self._config = agent, model, config
        self._instructions, self._tools = instructions, tools
        self._resumes, self._loop = resumes, loop
        self._around: _Current | None = None
        self._end: Body | None = None
        self._span: RunSpan | None = None

    @property
    def id(self) -> RunId:
        """The id of the run: the given one, `{agent}-{8 hex}`, or a UUID. No two runs share one."""
        return self._id

    async def __aenter__(self) -> Run:
        self._id = await self._choose_id()
        facts = self._session.state.facts
        around = self._around = _current.get()
        parent = Parent(run=self._parent) if isinstance(self._parent, str) else self._parent
        if parent is None and around is not None:
            parent = Parent(session=around.session, run=around.run)
        nested = parent is not None and parent.run in facts.runs
        # A nested run that was interrupted together with its parent is not what this one continues.
        open_run = next((one.run for one in facts.runs.values() if one.status == "running"), None)
        self._first_version = facts.head.version
        self._span = self._start_span(None if nested else _find_continued(facts.runs, open_run))
        self.enter_context()
        started = RunStarted(
            agent=self._agent,
            model=self._model,
            instructions=_digest(self._instructions),
            tools=dict(self._tools),
            parent=parent,
            continues=None if nested else open_run,
            config=self._config,
            trace=None if self._span is None else self._span.traceparent,
            resumes=self._resumes,
            loop=self._loop,
        )
        try:
            self._session._writer.record(started)
            if self._explicit is not None:
                await self._session.flush()
        except BaseException as error:
            if self._id in facts.runs and not self._session.is_lost:
                self._session._writer.record(_end_for(error))
            self.leave_context()
            self._end_span(error)
            raise
        return self

    def _start_span(self, continued: RunInfo | None) -> RunSpan | None:
        telemetry = look()
        if telemetry is None:
            return None
        return telemetry.start_run(
            session=self._session.id,
            run=self._id,
            agent=self._agent,
            model=self._model,
            continues=None if continued is None else (continued.run, continued.trace),
        )

    def _end_span(self, error: BaseException | None) -> None:
        if self._span is None:
            return
        found = self._session.state.facts.runs.get(self._id)
        if found is None or found.status == "running":
            self._span.end("interrupted", "", error)
        else:
            self._span.end(found.status, "" if found.reason == "error" else found.reason, error)

    def enter_context(self) -> None:
        """Make this the current run of the caller's context.

        Code without an event loop calls this in its own thread: the loop works in a copy of its context.
        """
        _current.set(_Current(self._session.id, self._id, self._around))
        if self._span is not None:
            self._span.enter()

    def leave_context(self) -> None:
        """Make the run around this one current again."""
        _current.set(self._around)
        if self._span is not None:
            self._span.leave()

    async def _choose_id(self) -> RunId:
        runs = self._session.state.facts.runs
        if self._explicit is None:
            while (fresh := fresh_run_id(self._agent)) in runs:
                pass
            return fresh
        chosen = run_id(self._explicit)
        if chosen in runs:
            raise RunExists(chosen, self._session.id)
        # The claim makes the id unique in the store.
        owner = self._session.state.facts.head
        record = msgspec.json.encode({"session": owner.session, "uid": owner.uid}).decode()
        change = ClaimChange(key=f"run:{chosen}", expect=None, record=record)
        engine = self._session._writer.engine
        outcome = await engine.call(engine.driver.claim, change)
        if isinstance(outcome, Claimed) and outcome.record != record:
            raise RunExists(chosen, _find_session(outcome.record))
        return chosen

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None and error is not None:
            self._span.fail_step(error)
        try:
            if self._session.is_lost:
                return
            facts = self._session.state.facts
            try:
                if facts.head.version == self._first_version and facts.changed and self._session.continuable:
                    await self._checkpoint()
            finally:  # Also if the caller is cancelled while it waits: the run has ended.
                end = self._find_end(error)
                if end is not None:
                    self._session._writer.record(end)
            with anyio.CancelScope(shield=True):
                await self._session.flush()
        except HoldfastError as failure:
            if error is None:
                error = failure
                raise
        finally:
            self.leave_context()
            self._end_span(error)

    def _find_end(self, error: BaseException | None) -> Body | None:
        end = self._end if error is None and self._end else _end_for(error)
        control = self._session._writer.run_control
        return end if control is None else control.end(end, error)

    async def _checkpoint(self) -> None:
        """Take a checkpoint for a run that took none."""
        with anyio.CancelScope(shield=True):
            await self._session.checkpoint()

    def complete(self, output: Json = None) -> None:
        """Set the output of the run; recorded when the block ends without an error."""
        refuse_unfaithful(output, "output")
        self._end_as(RunCompleted(output=output))

    def fail(self, reason: str, error: str = "") -> None:
        """End the run as failed, without an exception: a spent budget, a step limit.

        `reason` is a code, which stays when what was said is erased. Words belong into `error`.
        """
        self._end_as(RunFailed(reason=reason, error=error))

    def cancel(self, reason: str = "") -> None:
        """End the run as cancelled."""
        self._end_as(RunCancelled(reason=reason))

    def pause(self, reason: str) -> None:
        """End the run as paused: it waits for a person, and the status of the session becomes `waiting`.

        `reason` is a code, which stays when what was said is erased.
        """
        self._end_as(RunPaused(reason=reason))

    def _end_as(self, end: Body) -> None:
        check(end, None)  # Rejected here, not when the run ends: it would have no end.
        self._end = end

    def request(
        self, *, model: str | None = None, reserve_usd: float = 0.0, reserve_tokens: int = 0
    ) -> Request:
        """Begin a request to a model: `async with run.request(reserve_usd=0.05) as request`.

        Raises `BudgetSpent` instead of exceeding a cap. The reservation counts as spent until the outcome is
        known, also if the process dies meanwhile.
        """
        if not (0 <= reserve_usd < float("inf") and reserve_tokens >= 0):
            raise BadInput(f"nothing can be reserved with usd={reserve_usd!r} and tokens={reserve_tokens!r}")
        return Request(self._session, model or self._model, Reservation(reserve_usd, reserve_tokens))


class Request:
    """A request to a model. Call `reply` with its reply."""

    def __init__(self, session: Session, model: str | None, reserved: Reservation) -> None:
        self._session, self._model, self._reserved = session, model, reserved
        self._seq = 0
        self._answered = False
        self._usage: Usage | None = None
        self._cost_usd = 0.0
        self._span: ChatSpan | None = None

    async def __aenter__(self) -> Request:
        budget = self._session.budget
        breach = budget.find_breach(self._reserved)
        if breach is not None:
            cap, limit, spent, wanted = breach
            raise BudgetSpent(self._session.id, cap, limit=limit, spent=spent, wanted=wanted)
        self._session._writer.record(ModelRequested(model=self._model, reserved=self._reserved))
        self._seq = self._session.state.seq
        self._began_s = boot_s()
        telemetry = active()
        if telemetry is not None:
            step = self._session.state.facts.head.step + 1
            self._span = telemetry.start_chat(session=self._session.id, step=step, model=self._model)
        self.enter_context()
        caps = msgspec.structs.astuple(budget.caps)
        if self._reserved != Reservation() or any(cap is not None for cap in caps):
            try:
                await self._session.flush()
            except BaseException as error:
                # The request is not sent, so it costs nothing.
                self._end_span(error)
                if not self._session.is_lost:
                    self._session._writer.record(ModelFailed(request=self._seq, error=describe_error(error)))
                raise
        return self

    def enter_context(self) -> None:
        """Make this the current request of the caller's context: see `Run.enter_context`."""
        if self._span is not None:
            self._span.enter()

    def leave_context(self) -> None:
        """Make the context around this request current again."""
        if self._span is not None:
            self._span.leave()

    def _end_span(self, error: BaseException | None) -> None:
        self.leave_context()
        if self._span is not None:
            self._span.end(error)

    async def reply(
        self,
        message: Message | ForeignMessage | str | Json,
        *,
        format: str | None = None,
        usage: Usage | None = None,
        cost_usd: float = 0.0,
        latency_ms: float | None = None,
        model: str | None = None,
    ) -> None:
        """Record the reply of the model. Durable on return. `model` is the model that replied.

        What a provider's client returned is taken as it is (see `Session.add`), and its usage and model where
        they are not given.
        """
        if self._answered:
            raise BadInput("this request was answered already; make another one")
        refuse_unfaithful(latency_ms, "latency_ms")
        given = read_given(message, format, role="assistant")
        usage, model = usage or given.usage, model or given.model
        _refuse_negative(usage, cost_usd, latency_ms)
        found = given.message
        shape = shape_of(found)
        # The cost is known from here on, also if storing blobs fails.
        self._usage, self._cost_usd = usage or Usage(), cost_usd
        content = await self._session._writer.engine.pack_message(found)
        self._session._writer.record(
            ModelReplied(
                role=shape.role,
                parts=shape.parts,
                format=found.format,
                request=self._seq,
                usage=usage or Usage(),
                cost_usd=cost_usd,
                latency_ms=round((boot_s() - self._began_s) * 1000, 3) if latency_ms is None else latency_ms,
                model=model,
            ),
            content=content,
        )
        self._answered = True
        if self._span is not None:
            self._span.answer(usage or Usage(), model=model, cost_usd=cost_usd)
        await self._session.flush()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_span(error)
        if self._answered or self._session.is_lost:
            return
        # There was an error and no reply. After a cancellation or an interruption, the cost is unknown.
        unknown = error is not None and not isinstance(error, Exception)
        unknown = self._usage is None and (unknown or (isinstance(error, ModelError) and error.charged))
        self._session._writer.record(
            ModelFailed(
                request=self._seq,
                error=describe_error(error) if error else "left without a reply",
                cost_usd=self._reserved.usd if unknown else self._cost_usd,
                usage=Usage(output_tokens=self._reserved.tokens) if unknown else self._usage or Usage(),
            )
        )


def _refuse_negative(usage: Usage | None, cost_usd: float, latency_ms: float | None) -> None:
    """Reject negative costs, which would raise the caps. Other types are rejected by the codec."""
    given = {"cost_usd": cost_usd, "latency_ms": latency_ms}
    given |= {} if usage is None else msgspec.structs.asdict(usage)
    for name, value in given.items():
        if isinstance(value, int | float) and value < 0:
            raise BadInput(f"{name}={value!r} is negative; a reply costs and takes zero or more")


def _find_continued(runs: Mapping[str, RunInfo], open_run: str | None) -> RunInfo | None:
    """Find the run that a new one continues: one without an end, or the last if paused or cancelled."""
    if open_run is not None:
        return runs[open_run]
    outer = (one for one in reversed(list(runs.values())) if one.parent is None or one.parent.run not in runs)
    last = next(outer, None)
    return last if last is not None and last.status in ("paused", "cancelled") else None


def _end_for(error: BaseException | None) -> Body:
    if error is None:
        return RunCompleted()
    # By its class alone: `isinstance` would ask the exception, which may raise.
    if issubclass(type(error), BudgetSpent):
        return RunFailed(reason="budget_spent", error=str(error))
    if issubclass(type(error), Exception):
        return RunFailed(reason=ERROR, error=describe_error(error))
    return RunCancelled(reason=name_of(type(error)))


def _digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _RunClaim(msgspec.Struct):
    session: str = "?"


_decode_claim = msgspec.json.Decoder(_RunClaim).decode


def _find_session(record: str | None) -> str:
    """The session of the run that has the id, for the error text."""
    try:
        return _decode_claim(record or "{}").session
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "?"

"""Spans and metrics. The only module that imports OpenTelemetry, and only `holdfast.telemetry` imports it.

A context is left by attaching the outer one, never by resetting a context variable: code without an event
loop enters in one thread and leaves in another, and a generator may be closed by another task than its first
user.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Protocol

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from ..system.clock import boot_s
from . import names

Attributes = dict[str, AttributeValue]
_RUN: Final = contexts.create_key("holdfast-run")
_CALL: Final = contexts.create_key("holdfast-call")
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def _find_release() -> str | None:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return None


_RELEASE: Final = _find_release()
"""Read once: it comes from a file."""


def is_configured() -> bool:
    """Whether a provider is configured. The defaults of the API do nothing."""
    providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
    idle = ("opentelemetry.trace", "opentelemetry.metrics")
    return any(not type(one).__module__.startswith(idle) for one in providers)


class Telemetry:
    """Reports to the configured providers."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer_provider().get_tracer("holdfast", _RELEASE)
        meter = metrics.get_meter_provider().get_meter("holdfast", _RELEASE)
        self.tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self.chat_s = meter.create_histogram(
            names.CHAT_DURATION,
            unit="s",
            description="Duration of requests to models.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )
        self.run_s = meter.create_histogram(
            names.RUN_DURATION,
            unit="s",
            description="Duration of runs.",
            explicit_bucket_boundaries_advisory=names.RUN_BUCKETS,
        )
        self.call_s = meter.create_histogram(
            names.CALL_DURATION,
            unit="s",
            description="Duration of dispatches.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )
        self.refusals = meter.create_counter(
            names.REFUSALS, unit="{call}", description="Calls that a gate refused."
        )

    # -- starting spans ----------------------------------------------------------------------------------

    def start_run(
        self,
        *,
        session: str,
        run: str,
        agent: str | None,
        model: str | None,
        continues: tuple[str, str | None] | None,
    ) -> RunSpan:
        """Start the span of a run. `continues` is the earlier run that it continues, with its traceparent."""
        own: Attributes = {names.OPERATION: names.INVOKE_AGENT, names.CONVERSATION: session, names.RUN: run}
        shared: Attributes = {}
        if agent is not None:
            shared[names.AGENT] = agent
        if model is not None:
            own[names.PROVIDER], shared[names.REQUEST_MODEL] = names.split_model(model)
        before = None if continues is None else _read_traceparent(continues[1])
        links = [] if continues is None or before is None else [Link(before, {names.RUN: continues[0]})]
        around = contexts.get_current()
        span = self._tracer.start_span(
            f"{names.INVOKE_AGENT} {agent}" if agent else names.INVOKE_AGENT,
            around,
            attributes={**shared, **own},
            links=links,
        )
        return RunSpan(self, span, around, shared, session=session)

    def start_step(self, run: RunSpan, number: int) -> OpenSpan:
        """Start the span of a step."""
        span = self._tracer.start_span("step", run.inside, attributes={names.STEP: number})
        return OpenSpan(self, span, run.inside, {})

    def start_chat(self, *, session: str, step: int, model: str | None) -> ChatSpan:
        """Start the span of a request to a model."""
        around = contexts.get_current()
        shared: Attributes = {names.OPERATION: names.CHAT}
        shared[names.PROVIDER], asked = names.split_model(model or "")
        if asked:
            shared[names.REQUEST_MODEL] = asked
        span = self._tracer.start_span(
            f"{names.CHAT} {asked}" if asked else names.CHAT,
            _parent(around, step),
            SpanKind.CLIENT,
            {**shared, names.CONVERSATION: session, **_agent_in(around)},
        )
        return ChatSpan(self, span, around, shared)

    def start_call(self, *, tool: str, known: bool, call: str, session: str | None, step: int) -> CallSpan:
        """Start the span of a tool call. The name of an unknown tool is arbitrary text of a model, so it
        names no span, and is no attribute of a metric."""
        around = contexts.get_current()
        shared: Attributes = {**({names.TOOL: tool} if known else {}), **_agent_in(around)}
        own: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: tool,
            names.TOOL_TYPE: "function",
            names.CALL_ID: call,
        }
        if session is not None:
            own[names.CONVERSATION] = session
        span = self._tracer.start_span(
            f"{names.EXECUTE_TOOL} {tool}" if known else names.EXECUTE_TOOL,
            _parent(around, step),
            attributes={**shared, **own},
        )
        return CallSpan(self, span, around, shared)

    # -- reports about current spans ----------------------------------------------------------------

    def end_step(self, session: str, version: int) -> None:
        """End the step of the innermost run of this session."""
        run = _run_in(contexts.get_current())
        while run is not None and run.session != session:
            run = run.outer
        if run is not None:
            run.end_step({names.VERSION: version})

    def note_refusal(self, gate: str) -> None:
        """Report that a gate refused the current call."""
        call = _call_in(contexts.get_current())
        if call is not None:
            call.span.set_attribute(names.GATE, gate)
            self.refusals.add(1, {**call.shared, names.GATE: gate})

    def note_failure(self, error: BaseException | None, stopped: str) -> None:
        """Report that an attempt at the current call failed."""
        call = _call_in(contexts.get_current())
        if call is not None:
            call.failure = stopped.replace(" ", "_") if error is None else names.kind_of(error)


class Tokens(Protocol):
    """A `Usage`."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int: ...
    @property
    def cache_write_tokens(self) -> int: ...


class OpenSpan:
    """An open span: current for the code that entered it, and ended once. `shared` goes to metrics, too."""

    def __init__(self, telemetry: Telemetry, span: trace.Span, around: Context, shared: Attributes) -> None:
        self.telemetry, self.span, self.shared = telemetry, span, shared
        self.around = around
        self.inside = trace.set_span_in_context(span, around)
        self.began_s = boot_s()
        self.ended = False

    def enter(self) -> None:
        """Make this span the current one."""
        contexts.attach(self.inside)

    def leave(self) -> None:
        """Make the outer span the current one again."""
        contexts.attach(self.around)

    def close(
        self, found: Attributes, error: str | None, *, duration: metrics.Histogram | None = None
    ) -> None:
        """End the span with these attributes; a second end is ignored."""
        if self.ended:
            return
        self.ended = True
        if error is not None:
            found = {**found, names.ERROR: error}
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.set_attributes(found)
        if duration is not None:
            failed: Attributes = {} if error is None else {names.ERROR: error}
            duration.record(boot_s() - self.began_s, {**self.shared, **failed}, self.inside)
        self.span.end()


class RunSpan(OpenSpan):
    """The span of a run. Its step begins with the first request or dispatch, and ends with a checkpoint."""

    def __init__(
        self, telemetry: Telemetry, span: trace.Span, around: Context, shared: Attributes, *, session: str
    ) -> None:
        super().__init__(telemetry, span, around, shared)
        self.session, self.outer = session, _run_in(around)
        self.inside = contexts.set_value(_RUN, self, self.inside)
        self._step: OpenSpan | None = None

    @property
    def traceparent(self) -> str | None:
        """The W3C traceparent of the span; None if it is not valid."""
        found = self.span.get_span_context()
        if not found.is_valid:
            return None
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def step(self, number: int) -> OpenSpan:
        """The current step, started if there is none."""
        if self._step is None:
            self._step = self.telemetry.start_step(self, number)
        return self._step

    def end_step(self, found: Attributes, error: str | None = None) -> None:
        """End the current step, if there is one."""
        if self._step is not None:
            self._step.close(found, error)
            self._step = None

    def fail_step(self, error: BaseException) -> None:
        """End the current step with an error."""
        self.end_step({}, names.kind_of(error))

    def end(self, status: str, reason: str, error: BaseException | None) -> None:
        """End the run. `reason` is why it failed, unless it was an exception."""
        failure: str | None = None
        if status == "cancelled":
            failure = "cancelled"
        elif status in ("failed", "interrupted") or error is not None:
            failure = reason or (status if error is None else names.kind_of(error))
        self.end_step({}, failure)
        self.close({names.RUN_STATUS: status}, failure, duration=self.telemetry.run_s)


class ChatSpan(OpenSpan):
    """The span of a request to a model."""

    def answer(self, usage: Tokens, *, model: str | None, cost_usd: float) -> None:
        """End the request with its reply. If all token counts are 0, they are unknown."""
        found: Attributes = {}
        if model is not None:
            found[names.RESPONSE_MODEL] = self.shared[names.RESPONSE_MODEL] = model
        counted = {"input": usage.input_tokens, "output": usage.output_tokens}
        if any(counted.values()):
            found[names.INPUT_TOKENS], found[names.OUTPUT_TOKENS] = counted.values()
            for kind, count in counted.items():
                self.telemetry.tokens.record(count, {**self.shared, names.TOKEN_TYPE: kind}, self.inside)
        if usage.cache_read_tokens:
            found[names.CACHE_READ_TOKENS] = usage.cache_read_tokens
        if usage.cache_write_tokens:
            found[names.CACHE_WRITE_TOKENS] = usage.cache_write_tokens
        if cost_usd:
            found[names.COST] = cost_usd
        self.close(found, None, duration=self.telemetry.chat_s)

    def end(self, error: BaseException | None) -> None:
        """End the request. Without a reply, it failed."""
        failure = "no_reply" if error is None else names.kind_of(error)
        self.close({}, failure, duration=self.telemetry.chat_s)


class CallSpan(OpenSpan):
    """The span of a tool call."""

    def __init__(self, telemetry: Telemetry, span: trace.Span, around: Context, shared: Attributes) -> None:
        super().__init__(telemetry, span, around, shared)
        self.inside = contexts.set_value(_CALL, self, self.inside)
        self.failure: str | None = None
        """How the last attempt failed."""

    def end(self, status: str, *, replay_of: str | None, attempt: int) -> None:
        """End the call with its result."""
        found: Attributes = {names.CALL_STATUS: status}
        if replay_of is not None:
            found[names.REPLAY_OF] = replay_of
        if attempt:
            found[names.ATTEMPT] = attempt
        error: str | None = None
        if status == "refused":
            error = status
        elif status in ("failed", "in_doubt"):
            error = self.failure or status
        self.close(found, error, duration=self.telemetry.call_s)

    def fail(self, error: BaseException | None) -> None:
        """End the call without a result: its caller was cancelled, or an error occurred."""
        self.close({}, "no_result" if error is None else names.kind_of(error), duration=self.telemetry.call_s)


# -- the current context -------------------------------------------------------------------------------------


def _parent(around: Context, step: int) -> Context:
    """The parent of a request or dispatch: the step, if no other span is between it and the run."""
    run = _run_in(around)
    if run is not None and trace.get_current_span(around) is run.span:
        return run.step(step).inside
    return around


def _run_in(context: Context) -> RunSpan | None:
    found = context.get(_RUN)
    return found if isinstance(found, RunSpan) else None


def _call_in(context: Context) -> CallSpan | None:
    found = context.get(_CALL)
    return found if isinstance(found, CallSpan) else None


def _agent_in(context: Context) -> Attributes:
    run = _run_in(context)
    name = None if run is None else run.shared.get(names.AGENT)
    return {} if name is None else {names.AGENT: name}


def _read_traceparent(text: str | None) -> SpanContext | None:
    found = _TRACEPARENT.fullmatch(text or "")
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))

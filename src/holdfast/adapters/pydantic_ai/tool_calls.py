"""A tool call of pydantic-ai through the gates and the ledger of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final, TypeAlias

import anyio
from msgspec import UNSET
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python

from ...core.effects import Effect, Question
from ...core.entries import ApprovalGiven, CallRef
from ...errors import Closed
from ...messages import Json
from ...reprs import describe_error, describe_value
from ...session.session import Session
from ...tools.canonical import NotCanonical, fingerprint, normalise
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, Hook
from ...tools.dispatch import CallRequest
from ...tools.ledger import Ledger
from ...tools.lineage import Lineage, belongs_to_delegate, name_at_root
from ...tools.outcome import Declined, NoJsonForm, Result, RetryWanted, Waits
from ...tools.policy import Policy
from ...tools.registry import Registry
from ...tools.runner import InDoubtPolicy
from ...tools.schema import BadArguments
from .context import effect_around
from .errors import RunWaits
from .history import give_result, keep_result

Args: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Args], Awaitable[Any]]
_RECORDING_S: Final = 10.0
"""How long the session of a run that was cancelled waits for its calls to be recorded, after their grace."""
CALLER: Final = "the caller of the run"
"""The name under which approvals are recorded that a run was given as deferred results."""

_CONTROL: Final = (
    ApprovalRequired,
    CallDeferred,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
)
"""With these, a tool says what the run or the model should do next: it did nothing itself."""


class CheckedArguments:
    """The arguments of one call, which pydantic-ai has checked."""

    def __init__(self, values: Args, definition: ToolDefinition) -> None:
        self.schema: dict[str, Json] = definition.parameters_json_schema
        self.names: tuple[str, ...] = tuple(self.schema.get("properties", ()))
        self._values = values

    def check(self, args: Json) -> tuple[Args, Json]:
        """Pass recorded arguments as they are recorded, and those of this very call as objects."""
        plain = canonical(args)
        return (self._values if plain == canonical(self._values) else dict(plain)), plain


def canonical(args: Any) -> Json:
    """Arguments in canonical form, or `BadArguments`."""
    try:
        return normalise(to_jsonable_python(args, fallback=describe_value))
    except (NotCanonical, ValueError) as error:
        raise BadArguments([str(error)]) from None


class Tools:
    """The tools of one run, as the ledger of its session sees them."""

    def __init__(
        self,
        session: Session,
        *,
        policy: Policy | None,
        in_doubt: InDoubtPolicy,
        max_repeats: int,
        max_crashes: int,
        grace_s: float,
    ) -> None:
        self._session, self._tells = session, in_doubt == "tell"
        # Each call brings its tool: pydantic-ai may offer other ones in every step.
        self._registry = Registry(
            policy=policy,
            in_doubt=in_doubt,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            grace_s=grace_s,
        )
        self._turns: dict[str, anyio.Lock] = {}
        self._grace_s = grace_s
        self._under_way: set[anyio.CancelScope] = set()
        """The calls that are being executed."""
        self._ended = anyio.Event()
        """Set, and made anew, when one of them has ended."""
        self.waits = False
        """Whether a call is in doubt, and a person must settle it."""
        self.below: RunWaits | None = None
        """Why an agent that runs in a tool waits."""
        self._invalid: dict[str, str] = {}
        """Why the arguments of calls that were made before are not valid any more, by the call."""

    @staticmethod
    def check(*, in_doubt: InDoubtPolicy, max_repeats: int, max_crashes: int, grace_s: float) -> None:
        """Refuse options that no registry takes."""
        Registry(in_doubt=in_doubt, max_repeats=max_repeats, max_crashes=max_crashes, grace_s=grace_s)

    def is_on_record(self, ref: CallRef) -> bool:
        """Whether the call was begun before: then its outcome counts, whatever became of the tool since."""
        if self._session.state.facts.effects.find_call(ref):
            return True
        lineage = Lineage.of(self._session)
        if lineage is None:
            return False
        return bool(lineage.root.state.facts.effects.find_call(name_at_root(self._session, ref)))

    def note_invalid(self, ref: CallRef, why: str) -> None:
        """Note that the arguments are no longer valid: the body is not entered, and the model is told why."""
        self._invalid[ref.id] = why

    async def execute(
        self,
        ctx: RunContext[Any],
        ref: CallRef,
        declared: AnyTool,
        definition: ToolDefinition,
        args: Args,
        handler: Handler,
    ) -> Any:
        """What the tool returns, or returned when this very call was made before."""
        scope = anyio.CancelScope()
        self._under_way.add(scope)
        try:
            with scope:
                return await self._execute(ctx, ref, declared, definition, args, handler)
        finally:
            self._under_way.discard(scope)
            self._ended.set()
            self._ended = anyio.Event()
        raise Closed(f"{definition.name}: its run has ended")

    async def stop(self) -> None:
        """Cancel the calls that are under way when the run ends, and wait until they have had their grace.

        pydantic-ai cancels them only once the run has ended; but how they end is recorded in its session.
        """
        for scope in self._under_way:
            scope.cancel()
        with anyio.move_on_after(2 * self._grace_s + _RECORDING_S):
            while self._under_way:
                await self._ended.wait()

    async def _execute(
        self,
        ctx: RunContext[Any],
        ref: CallRef,
        declared: AnyTool,
        definition: ToolDefinition,
        args: Args,
        handler: Handler,
    ) -> Any:
        invalid = self._invalid.pop(ref.id, None)
        body = _HandlerBody(handler, invalid, changes_the_world=declared.changes_the_world)
        tool = declared.with_body(Hook(body, True, True), CheckedArguments(args, definition))
        if ctx.tool_call_approved:
            self._approve(ref, tool, args)
        # What one tool sets is set in the order of the calls.
        turn = self._turns.setdefault(tool.name, anyio.Lock()) if "write" in tool.side_effects else None
        async with turn or nullcontext():
            last = await self._settle(ref, tool, args, ctx.deps)
            if last is not None and last.status == "completed":
                given = await Ledger.of(self._session).recall(last)
                if given.unkept:
                    raise ToolFailed(given.text)
                # Where the value is lost, or was erased, there is the text.
                is_there = given.value is not None or given.text == "null"
                return self._give(ctx, body, given.value if is_there else given.text)
            asked = self._session.state.facts.effects.find_question(ref)
            call = CallRequest(ref, tool.name, _original(args, last, asked), tool)
            result = await self._registry.dispatch_call(call, session=self._session, deps=ctx.deps)
        return self._conclude(ctx, result, body)

    def _give(self, ctx: RunContext[Any], body: _HandlerBody, kept: Json) -> Any:
        """The value that the body gave now, or else the recorded one."""
        if body.has_value:
            return body.value
        ctx.usage.tool_calls += 1  # It counts, as if it had been run here.
        return give_result(kept)

    def _approve(self, ref: CallRef, tool: AnyTool, args: Args) -> None:
        """Record the approval that came in pydantic-ai's own deferred results, if there is no answer yet."""
        asked = self._session.state.facts.effects.find_question(ref)
        if asked is None or asked.approved is not None:
            return
        plain = canonical(args)
        corrected = UNSET if fingerprint(tool.name, plain) == asked.fingerprint else plain
        self._session._writer.record(
            ApprovalGiven(call=asked.call, asked=asked.asked, by=CALLER, args=corrected)
        )

    async def _settle(self, ref: CallRef, tool: AnyTool, args: Args, deps: Any) -> Effect | None:
        """Settle this call and equal ones, if they are in doubt; its last attempt."""
        session, lineage = self._session, Lineage.of(self._session)
        effects = session.state.facts.effects
        if lineage is not None:
            above = name_at_root(session, ref).id
            for row in [row for row in lineage.root.in_doubt if row.call.id == above]:
                await self._settle_row(lineage.root, row, tool, deps)
        for row in effects.in_doubt if effects.open else ():
            mine = row.call.id == ref.id
            same = row.tool == tool.name and row.fingerprint == _fingerprint(tool, args)
            if mine or (same and not belongs_to_delegate(session, row.call)):
                await self._settle_row(session, row, tool, deps)
        tried = effects.find_call(ref)
        return tried[-1] if tried else None

    async def _settle_row(self, session: Session, row: Effect, tool: AnyTool, deps: Any) -> None:
        found = tool if row.tool == tool.name else None
        await self._registry.settle_call(session, row, tool=found, deps=deps)

    def _conclude(self, ctx: RunContext[Any], result: Result, body: _HandlerBody) -> Any:
        match result.status:
            case "completed" if result.unkept:
                raise ToolFailed(result.content)
            case "completed" if result.replay_of is not None:
                return self._give(ctx, body, result.content)  # Marked as a replay: the model should know.
            case "completed":
                return self._give(ctx, body, result.value)
            case "waiting" if isinstance(body.error, RunWaits):
                self.below = body.error
                return result.content
            case "waiting":
                raise ApprovalRequired()
            case "in_doubt" if self._tells:
                raise ToolFailed(result.content)
            case "in_doubt" if body.error is None or body.cut_off:
                # Its neighbours are not cut off: the run stops once they have ended.
                self.waits = True
                return result.content
            case _ if body.error is None:
                raise ToolFailed(result.content)
        if result.status == "in_doubt":
            body.error.add_note(f"holdfast: {result.content}")
        raise body.error


class _HandlerBody:
    """The tool as pydantic-ai runs it, as the body of a call. Keeps its value or exception as it is."""

    def __init__(self, handler: Handler, invalid: str | None, *, changes_the_world: bool) -> None:
        self._handler, self._invalid, self._changes_the_world = handler, invalid, changes_the_world
        self.value: Any = None
        self.has_value = False
        self.error: Exception | None = None
        self.cut_off = False
        """Whether pydantic-ai's own timeout ended it."""

    async def __call__(self, ctx: AnyContext, /, **values: Any) -> Json | NoJsonForm:
        self.error, self.cut_off = None, False
        with effect_around(ctx):
            try:
                if self._invalid is not None:
                    raise ModelRetry(self._invalid)
                self.value = await self._handler(values)
            except (ModelRetry, ToolRetryError) as error:
                self.error = error
                self.cut_off = _is_timeout(error)
                if self.cut_off and self._changes_the_world:
                    raise  # No retry was asked for: the body was cut off, and may have done something.
                raise RetryWanted(describe_error(error)) from error
            except _CONTROL as error:
                self.error = error
                raise Declined(describe_error(error)) from error
            except RunWaits as error:
                self.error = error
                raise Waits(str(error)) from error
            except Exception as error:
                self.error = error
                raise
        self.has_value = True
        return keep_result(self.value)


def _is_timeout(error: ModelRetry | ToolRetryError) -> bool:
    """Whether pydantic-ai's `timeout=` ended the body, which it says as if the tool asked for a retry."""
    said = error.__cause__ if isinstance(error, ToolRetryError) else error
    return (
        isinstance(said, ModelRetry)
        and isinstance(said.__context__, TimeoutError)
        and said.__suppress_context__
        and said.message.startswith("Timed out after ")
    )


def _original(args: Args, last: Effect | None, asked: Question | None) -> Json:
    """The arguments that the call was made with: a person or changed code may have altered them since."""
    if asked is not None and asked.new_args is not UNSET:
        return asked.args
    if last is not None and last.args is not None:
        return last.args
    return args


def _fingerprint(tool: AnyTool, args: Args) -> str:
    try:
        return fingerprint(tool.name, canonical(args))
    except BadArguments:
        return ""

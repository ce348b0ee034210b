"""A tool call of pydantic-ai through the gates and the ledger of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

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

from ...core.entries import CallRef
from ...errors import Closed
from ...messages import Json
from ...reprs import describe_error, describe_value
from ...session.session import Session
from ...tools.canonical import NotCanonical, normalise
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, Hook
from ...tools.dispatch import CallRequest
from ...tools.ledger import Ledger
from ...tools.outcome import Declined, NoJsonForm, Result, RetryWanted, Waits
from ...tools.schema import BadArguments
from ..foreign_calls import ForeignCalls, original_args
from ..run_errors import RunWaits
from .context import EFFECT
from .history import give_result, keep_result

Args: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Args], Awaitable[Any]]
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


def _find_canonical(args: Args) -> Json | None:
    """Arguments in canonical form; None if they have none, which the gates say."""
    try:
        return canonical(args)
    except BadArguments:
        return None


class Tools(ForeignCalls):
    """The tools of one run, as the ledger of its session sees them."""

    below: RunWaits | None = None
    """Why an agent that runs in a tool waits."""

    def __init__(self, session: Session, **options: Any) -> None:
        super().__init__(session, **options)
        self.in_doubt: list[tuple[CallRef, Result]] = []
        """Calls that a person must settle."""
        self._invalid: dict[str, str] = {}
        """Why the arguments of calls that were made before are not valid any more, by the call."""

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
        with self.running():
            return await self._execute(ctx, ref, declared, definition, args, handler)
        raise Closed(f"{definition.name}: its run has ended")

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
        plain = _find_canonical(args)
        if ctx.tool_call_approved:
            self.note_approval(ref, tool, plain)
        async with self.in_turn(tool):
            last = await self.settle(ref, tool, plain, ctx.deps)
            if last is not None and last.status == "completed":
                given = await Ledger.of(self.session).recall(last)
                if given.unkept:
                    raise ToolFailed(given.text)
                # Where the value is lost, or was erased, there is the text.
                is_there = given.value is not None or given.text == "null"
                return self._give(ctx, body, given.value if is_there else given.text)
            asked = self.find_question(ref)
            call = CallRequest(ref, tool.name, original_args(args, last, asked), tool)
            result = await self.registry.dispatch_call(call, session=self.session, deps=ctx.deps)
        return self._conclude(ctx, ref, result, body)

    def _give(self, ctx: RunContext[Any], body: _HandlerBody, kept: Json) -> Any:
        """The value that the body gave now, or else the recorded one."""
        if body.has_value:
            return body.value
        ctx.usage.tool_calls += 1  # It counts, as if it had been run here.
        return give_result(kept)

    def _conclude(self, ctx: RunContext[Any], ref: CallRef, result: Result, body: _HandlerBody) -> Any:
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
            case "in_doubt" if self.tells:
                raise ToolFailed(result.content)
            case "in_doubt" if body.error is None or body.cut_off:
                # Its neighbours are not cut off: the run stops once they have ended.
                self.in_doubt.append((ref, result))
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
        with EFFECT.around(ctx):
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

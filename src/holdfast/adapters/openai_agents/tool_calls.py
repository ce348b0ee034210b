"""A tool call of the SDK through the gates and the ledger of the session."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agents import (
    ModelBehaviorError,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    Usage,
    custom_span,
)
from agents.tool_context import ToolContext as TheirContext
from agents.usage import deserialize_usage

from ...core.effects import Effect
from ...core.entries import CallRef
from ...errors import Closed
from ...messages import Json
from ...reprs import describe_error, describe_value, find_nameless
from ...session.session import Session
from ...tools.canonical import NotCanonical, normalise
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, Hook
from ...tools.dispatch import CallRequest
from ...tools.executor import asks_to_exit
from ...tools.ledger import Ledger
from ...tools.outcome import NoJsonForm, Result, RetryWanted, Waits, no_json_form
from ..foreign_calls import ForeignCalls, original_args
from ..run_errors import RunExits, RunWaits
from .context import EFFECT

Invoke = Callable[[TheirContext[Any], str], Awaitable[Any]]
USED: Final = "openai_agents.usage"
"""The note of a call that has the usage of the agent that ran in it."""
_WRAPPED: Final = "openai_agents.output"
_PARTS: Final[dict[str, type[Any]]] = {
    "text": ToolOutputText,
    "image": ToolOutputImage,
    "file": ToolOutputFileContent,
}
_NOT_THE_TOOL: Final = {"agents", "holdfast", *sys.stdlib_module_names}
"""The packages between a call and the body of its tool."""


class ToolWaits(Exception):
    """A tool of the SDK paused: an agent in it needs an approval. What it gave is its value so far."""

    def __init__(self, value: Any) -> None:
        super().__init__("an agent in the tool waits for an approval")
        self.value = value


def read_args(given: str) -> Json:
    """The arguments of a call as JSON-like data. What is no JSON object stands under `arguments`."""
    try:
        args = json.loads(given) if given.strip() else {}
        return normalise(args) if isinstance(args, dict) else {"arguments": given}
    except (ValueError, RecursionError):
        return {"arguments": describe_value(given)}


class _GivenArguments:
    """The arguments of one call, which the SDK checks when it runs the tool."""

    def __init__(self, schema: dict[str, Json]) -> None:
        self.schema = schema
        properties: dict[str, Json] = schema.get("properties") or {}
        self.names: tuple[str, ...] = tuple(properties)
        self._defaults = {
            name: one["default"]
            for name, one in properties.items()
            if isinstance(one, dict) and "default" in one
        }

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """Pass them as they are. Hooks are given the defaults that the model left out, too."""
        return {**self._defaults, **args}, args


class RunTools(ForeignCalls):
    """The tools of one run, as the ledger of its session sees them."""

    below: RunWaits | None = None
    """Why an agent that runs in a tool waits."""

    def __init__(self, session: Session, **options: Any) -> None:
        super().__init__(session, **options)
        self.waits: list[tuple[CallRef, Result]] = []
        """The calls that wait for a person."""
        self.used = Usage()
        """What the replies of the run used, and those of agents in its tools, recorded ones included."""

    async def execute(
        self,
        ctx: TheirContext[Any],
        ref: CallRef,
        declared: AnyTool,
        schema: dict[str, Json],
        arguments: str,
        invoke: Invoke,
        recorded: Json,
        *,
        raises: bool,
    ) -> Any:
        """What the tool returns, or returned when this very call was made before. `recorded` is the output
        that the SDK added for it; `raises`: its exceptions end the run."""
        try:
            with self.running():
                return await self._execute(
                    ctx, ref, declared, schema, arguments, invoke, recorded, raises=raises
                )
        except BaseException as error:
            if asks_to_exit(error):
                raise RunExits(error) from error
            raise
        raise Closed(f"{declared.name}: its run has ended")

    async def _execute(
        self,
        ctx: TheirContext[Any],
        ref: CallRef,
        declared: AnyTool,
        schema: dict[str, Json],
        arguments: str,
        invoke: Invoke,
        recorded: Json,
        *,
        raises: bool,
    ) -> Any:
        checking = _GivenArguments(schema)
        args = read_args(arguments)
        body = _TheirBody(ctx, invoke, arguments, checking.check(args)[0])
        tool = declared.with_body(Hook(body, True, True), checking)
        deps = ctx.context
        if isinstance(recorded, str):
            _trace_replay(declared.name)
            return await self._repeat(ctx, ref, recorded)
        self.note_approval(ref, tool, args)
        async with self.in_turn(tool):
            last = await self.settle(ref, tool, args, deps)
            if last is not None and last.status == "completed":
                _trace_replay(declared.name)
                return await self._recall(ctx, last)
            asked = self.find_question(ref)
            call = CallRequest(ref, tool.name, original_args(args, last, asked), tool)
            result = await self.registry.dispatch_call(call, session=self.session, deps=deps)
        return self._conclude(ref, result, body, raises=raises)

    def is_completed(self, ref: CallRef) -> bool:
        """Whether the call has a result on record."""
        tried = self.session.state.facts.effects.find_call(ref)
        return bool(tried) and tried[-1].status == "completed"

    async def _repeat(self, ctx: TheirContext[Any], ref: CallRef, recorded: str) -> Any:
        """What the model was told of the call; the value itself, if that is what it was."""
        tried = self.session.state.facts.effects.find_call(ref)
        if tried and tried[-1].status == "completed":
            value = await self._recall(ctx, tried[-1])
            if str(value) == recorded:
                return value
        return recorded

    async def _recall(self, ctx: TheirContext[Any], row: Effect) -> Any:
        used = row.notes.get(USED)
        if used is not None:
            self.used.add(deserialize_usage(used))
            ctx.usage.add(deserialize_usage(used))
        given = await Ledger.of(self.session).recall(row)
        # Where the value is lost, or was erased, there is the text.
        is_there = given.value is not None or given.text == "null"
        return give_output(given.value if is_there else given.text)

    def _conclude(self, ref: CallRef, result: Result, body: _TheirBody, *, raises: bool) -> Any:
        match result.status:
            case "completed" if body.has_value:
                return body.value
            case "completed" if result.replay_of is not None or result.unkept:
                return result.content  # Marked as a replay: the model should know.
            case "completed":
                return give_output(result.value)
            case "waiting" if isinstance(body.error, ToolWaits):
                return body.error.value
            case "waiting":
                if isinstance(body.error, RunWaits):
                    self.below = body.error
                self.waits.append((ref, result))
                return result.content
            case "in_doubt" if self.tells:
                return result.content
            case "in_doubt" if body.error is None or not raises:
                # Its neighbours are not cut off: the run stops once they have ended.
                self.waits.append((ref, result))
                return result.content
            case _ if body.error is None:
                return result.content
        if result.status == "in_doubt":
            body.error.add_note(f"holdfast: {result.content}")
        raise body.error


def _trace_replay(tool: str) -> None:
    """Have the trace say that an output comes from the record."""
    with custom_span("holdfast replay", {"tool": tool, "replayed": True}):
        pass


class _TheirBody:
    """The tool as the SDK runs it, as the body of a call. Keeps its value or exception as it is."""

    def __init__(
        self, ctx: TheirContext[Any], invoke: Invoke, arguments: str, values: dict[str, Any]
    ) -> None:
        """`values` are what it is called with for these arguments."""
        self._ctx, self._invoke, self._arguments, self._values = ctx, invoke, arguments, values
        self.value: Any = None
        self.has_value = False
        self.error: Exception | None = None

    async def __call__(self, ctx: AnyContext, /, **values: Any) -> Json | NoJsonForm:
        self.error = None
        # A person may have corrected them, and recorded ones may be settled.
        given = self._arguments if values == self._values else json.dumps(values, ensure_ascii=False)
        with EFFECT.around(ctx):
            try:
                self.value = await self._invoke(self._ctx, given)
            except ModelBehaviorError as error:
                self.error = error
                if _ran_into(error):
                    raise
                # The arguments were refused: nothing was run.
                raise RetryWanted(describe_error(error)) from error
            except (RunWaits, ToolWaits) as error:
                self.error = error
                raise Waits(str(error)) from error
            except Exception as error:
                self.error = error
                raise
        kept = keep_output(self.value)
        self.has_value = not isinstance(kept, NoJsonForm)
        return kept


def _ran_into(error: BaseException) -> bool:
    """Whether an error came by way of code that is neither the SDK's nor ours: the tool itself was run."""
    frame = error.__traceback__
    while frame is not None:
        module = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _NOT_THE_TOOL:
            return True
        frame = frame.tb_next
    return False


# -- what tools return -----------------------------------------------------------------------------------


def keep_output(value: Any) -> Json | NoJsonForm:
    """What a tool returned, as the ledger keeps it. The SDK shows the model the text of what is neither
    text nor one of its own parts, so that is kept of other values, unless JSON holds them exactly. A text
    that says only where the value was in memory is of no use to the model, and an error."""
    if value is None or value.__class__ in (str, int, bool):
        return value
    try:
        parts = _keep_parts(value)
        if parts is not None:
            return {_WRAPPED: parts}
        kept = normalise(value)
        if kept == value and type(kept) is type(value) and str(kept) == str(value):
            return kept
    except (NotCanonical, RecursionError, TypeError, ValueError):
        pass
    nameless = find_nameless(value)
    return str(value) if nameless is None else no_json_form(nameless)


def _keep_parts(value: Any) -> Json:
    if isinstance(value, list | tuple):
        kept = [_keep_parts(one) for one in value]
        return kept if kept and all(one is not None for one in kept) else None
    if isinstance(value, ToolOutputText | ToolOutputImage | ToolOutputFileContent):
        return value.model_dump(mode="json", exclude_unset=True) | {"type": value.type}
    return None


def give_output(kept: Json) -> Any:
    """What `keep_output` kept."""
    if not (isinstance(kept, dict) and kept.keys() == {_WRAPPED}):
        return kept
    return _give_parts(kept[_WRAPPED])


def _give_parts(kept: Json) -> Any:
    if isinstance(kept, list):
        return [_give_parts(one) for one in kept]
    return _PARTS[kept["type"]](**kept)

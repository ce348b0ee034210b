"""The registry: tools by name, and the entry of every tool call."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from ..content.encode import Given
from ..core.effects import Effect, Repeats, Undone
from ..core.entries import CallRef
from ..errors import BadInput, LeaseHeld, NotFound
from ..ids import check_list, fresh_call_id
from ..limits import CRASHES_MAX, REPEATS_MAX, TOOL_GRACE_S
from ..messages import Json, Text, ToolCall, ToolResult, calls_of
from ..session.session import Session
from ..store.approvals import Doubt
from ..store.opening import AnyStore, use_store
from ..store.store import Store
from ..telemetry import active, note_failure, note_refusal
from .context import ToolContext
from .declaration import AnyTool, Hook, how_to_declare
from .dispatch import CallRequest, Dispatch, OnResult
from .effects_by_name import EffectsByName, ToolEffects
from .executor import refuse_inside, refuse_waiting, run_plain
from .gates import Asks, Gates, Refused
from .lineage import Lineage, prefix_at_root
from .outcome import Result, ResultStatus, as_given, as_text
from .policy import Policy
from .runner import InDoubtPolicy, Runner
from .tracing import TracedCall
from .undo import undo
from .waiting import StepResults, find_waiting_calls

log = logging.getLogger("holdfast")
Provider: TypeAlias = Literal["json", "openai", "anthropic", "google"]


class Registry:
    """Tools, and what they may do.

    `in_doubt`: a call in doubt waits for a person (`wait`), or the model is told (`tell`); it is not run
    again either way. `max_repeats`: the third identical call in a row is not run. `max_crashes`: nor is a
    call that was running when the process died three times. `grace_s`: how long a running side effect may go
    on when its caller is cancelled. `effects`: what tools do that cannot be decorated, by name or glob; it
    wins over what they declare: `{"search_*": "read", "send": mutate(verify=…)}`.
    """

    def __init__(
        self,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        *,
        effects: Mapping[str, ToolEffects] | None = None,
        policy: Policy | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = REPEATS_MAX,
        max_crashes: int = CRASHES_MAX,
        grace_s: float = TOOL_GRACE_S,
    ) -> None:
        if in_doubt not in ("wait", "tell"):
            raise BadInput(f"in_doubt is 'wait' or 'tell', not {in_doubt!r}")
        if max_repeats < 2 or max_crashes < 1:
            raise BadInput("max_repeats is at least 2 and max_crashes at least 1")
        if not 0 <= grace_s < math.inf:
            raise BadInput(f"grace_s is a number of seconds, 0 or more, not {grace_s!r}")
        self._tools: dict[str, AnyTool] = {}
        self._in_doubt, self.grace_s = in_doubt, grace_s
        self._gates = Gates(self._tools, policy or Policy(), max_repeats=max_repeats, max_crashes=max_crashes)
        self._repeats = Repeats()
        """The loop history of calls without a session."""
        self._effects = EffectsByName(effects)
        for one in check_list("tools", tools):
            self._add(one)
        self._effects.check_names(self._tools)
        self._effects.warn_of_covered()

    def add(self, given: AnyTool | Callable[..., Any]) -> AnyTool:
        """Add a tool; a plain function counts as one that declares nothing."""
        tool = self._add(given)
        self._effects.warn_of_covered()
        return tool

    def _add(self, given: AnyTool | Callable[..., Any]) -> AnyTool:
        name = str(getattr(given, "__name__", ""))
        tool = self._effects.apply(given, how_to_declare(name))
        if tool.name in self._tools:
            raise BadInput(f"there is a tool {tool.name!r} already; give one of them another name=…")
        self._tools[tool.name] = tool
        return tool

    def in_replay(self, body: Callable[[AnyTool], Hook | None]) -> Registry:
        """The same registry with other bodies: its gates decide, and nothing of its tools is run. A tool for
        which there is none stays as it is."""
        made = copy.copy(self)
        bodies = {name: body(one) for name, one in self._tools.items()}
        made._tools = {
            name: one if (given := bodies[name]) is None else one.in_replay(given)
            for name, one in self._tools.items()
        }
        made._gates, made._repeats = self._gates.over(made._tools), Repeats()
        return made

    @property
    def waits_for_people(self) -> bool:
        """Whether a call in doubt waits for a person; else the model is told."""
        return self._in_doubt == "wait"

    @property
    def tools(self) -> Mapping[str, AnyTool]:
        """The tools by name."""
        return dict(self._tools)

    def get_tool(self, name: str) -> AnyTool:
        """The tool with this name, or `NotFound`."""
        if name not in self._tools:
            raise NotFound(f"there is no tool {name!r}; there are {sorted(self._tools)}")
        return self._tools[name]

    def schemas(self, provider: Provider = "json") -> list[dict[str, Json]]:
        """The tools in the form that a provider expects."""
        if provider not in _SHAPES:
            raise BadInput(f"no schemas for {provider!r}; there are {', '.join(_SHAPES)}")
        return [_SHAPES[provider](tool) for tool in self._tools.values()]

    # -- dispatching ---------------------------------------------------------------------------------

    async def dispatch(
        self,
        name: str,
        args: Json,
        *,
        call_id: str | None = None,
        session: Session | None = None,
        deps: Any = None,
    ) -> Result:
        """Take one call through the gates and, with a session, through the ledger.

        A `call_id` names the call in its session: dispatched again after a crash, it gives the recorded
        outcome. Without a session there are the gates alone.
        """
        return await self.dispatch_call(
            CallRequest(CallRef(id=call_id or fresh_call_id()), name, args), session=session, deps=deps
        )

    async def dispatch_call(self, call: CallRequest, *, session: Session | None, deps: Any = None) -> Result:
        """As `dispatch`, for a call that may say which reply it belongs to, and may bring its own tool.

        An adapter whose framework gives each call a body of its own hands over
        `tool.with_body(body, arguments)`; that tool need not be one of the registry's.
        """
        work = self._dispatch_bare(call, deps) if session is None else self._dispatch(session, deps).one(call)
        telemetry = active()
        if telemetry is None:
            return await work
        known = call.tool is not None or call.name in self._tools
        return await TracedCall(telemetry, session, call.name, call.ref, known=known).run(work)

    async def dispatch_step(
        self, session: Session, *, deps: Any = None, on_result: OnResult | None = None
    ) -> StepResults:
        """Dispatch the calls of the last reply together; those that have a result keep it.

        One commit carries all intents. Calls of one tool that writes run in the reply's order, everything
        else side by side. `on_result` is called with each result as soon as it is there.

        If `waiting` of what is returned is not empty, a call has no result yet: end the run, and dispatch the
        step again when a person has answered.
        """
        refuse_inside(session, "dispatch_step")
        head = session.state.facts.head
        if head.waiting or head.in_doubt:
            await session.take_in()  # Perhaps a person has answered.
        await session._writer.read_contents()
        calls, given = _last_calls(session)
        unanswered = session.state.transcript_fold.list_unanswered()
        missing = [CallRequest(ref, call.name, call.args) for ref, call in unanswered]
        results = await self._dispatch(session, deps, on_result).all(missing) if missing else []
        fresh = dict(zip((call.ref.index for call in missing), results, strict=True))
        still = {ref.index for ref, _ in session.state.transcript_fold.list_unanswered()} if missing else ()
        without = [(call.ref, fresh[call.ref.index]) for call in missing if call.ref.index in still]
        waiting = await find_waiting_calls(session, without) if without else ()
        return StepResults(
            (
                fresh[index] if index in fresh else _as_result(call, given[index])
                for index, call in enumerate(calls)
            ),
            waiting,
        )

    async def settle(
        self,
        session: Session,
        *,
        deps: Any = None,
        policy: str | None = None,
        tool: AnyTool | None = None,
        on_result: OnResult | None = None,
    ) -> list[Effect]:
        """Settle the calls in doubt; see `Session.settle`.

        `tool` stands in for the registry's tool of that name. `on_result` is called with each result.
        """
        if policy not in (None, "wait", "tell"):
            raise BadInput(f"policy is 'wait' or 'tell', not {policy!r}")
        refuse_inside(session, "settle")
        tools = self._tools if tool is None else {**self._tools, tool.name: tool}
        lineage = Lineage.of(session)
        if lineage is not None:
            root = self._runner(lineage.root, deps, policy)
            await root.settle(tools, self._gates, prefix=prefix_at_root(session))
        runner = self._runner(session, deps, policy)
        return await runner.settle(tools, self._gates, on_result=on_result)

    async def settle_call(
        self, session: Session, row: Effect, *, tool: AnyTool | None = None, deps: Any = None
    ) -> None:
        """Settle one call in doubt, and leave the others alone; `tool` as in `dispatch_call`."""
        refuse_waiting(session, row.key)
        found = self._tools.get(row.tool) if tool is None else tool
        await self._runner(session, deps).settle_call(found, self._gates, row)

    async def settle_all(
        self, store: AnyStore | None = None, *, deps: Any = None, policy: str | None = None
    ) -> list[Doubt]:
        """Settle the calls in doubt of every session that has no holder; those that stay in doubt."""
        async with use_store(store) as found:
            return await self._settle_all(found, deps, policy)

    async def _settle_all(self, store: Store, deps: Any, policy: str | None) -> list[Doubt]:
        found = {doubt.session async for doubt in store.in_doubt() if doubt.operation is None}
        for id in sorted(found):
            try:
                async with store.session(id, create=False) as session:
                    await self.settle(session, deps=deps, policy=policy)
            except (LeaseHeld, NotFound) as error:
                log.info("session %s is left to its holder: %s", id, error)
        return [doubt async for doubt in store.in_doubt()]

    async def undo(self, session: Session, effects: Sequence[Effect], *, deps: Any = None) -> list[Undone]:
        """Take effects back, the last first; each undo is recorded as an effect of its own."""
        return await undo(session, self._tools, self._gates, self._runner(session, deps), effects)

    def _dispatch(self, session: Session, deps: Any, on_result: OnResult | None = None) -> Dispatch:
        lineage = Lineage.of(session)
        root = None if lineage is None else self._dispatch(lineage.root, deps)
        runner = self._runner(session, deps)
        return Dispatch(session, self._tools, self._gates, runner, root=root, on_result=on_result)

    def _runner(self, session: Session, deps: Any, policy: str | None = None) -> Runner:
        chosen: InDoubtPolicy = "tell" if (policy or self._in_doubt) == "tell" else "wait"
        return Runner(session, in_doubt=chosen, grace_s=self.grace_s, deps=deps)

    async def _dispatch_bare(self, call: CallRequest, deps: Any) -> Result:
        gated = self._gates.check(
            call.name,
            call.args,
            tool=call.tool,
            repeats=self._repeats,
            tried=[],
            answer=None,
            budget=None,
        )
        if isinstance(gated, Asks):
            text = f"{call.name}: needs a person's approval, and there is no session to wait in"
            gated = Refused(gate="policy", content=text, fingerprint=gated.ready.fingerprint)
        self._repeats.note_call(gated.fingerprint)
        if isinstance(gated, Refused):
            note_refusal(gated.gate)
            return Result(call_id=call.ref.id, name=call.name, content=gated.content, status="refused")
        ctx = ToolContext(
            key=gated.fingerprint, call_id=call.ref.id, attempt=1, deps=deps, session=None, issued_at=None
        )
        tool = gated.tool
        ran = await run_plain(tool.body, ctx, gated.values, tool.timeout_s)
        if not ran.done:
            note_failure(ran.error or ran.exit, ran.stopped)
        if ran.exit is not None:
            raise ran.exit
        given = Given()
        if ran.done:
            given = as_given(ran.value, tool.name, changes_the_world=tool.changes_the_world)
            text = given.text if given.unkept else as_text(given.value)
        else:
            text = ran.describe_failure(tool.name)
        self._repeats.note_result(gated.fingerprint, sha256(text.encode()).hexdigest())
        status: ResultStatus = "completed" if ran.done else "failed"
        return Result(
            call_id=call.ref.id,
            name=call.name,
            content=text,
            value=given.value,
            status=status,
            unkept=given.unkept,
        )


def _last_calls(session: Session) -> tuple[Sequence[ToolCall], dict[int, ToolResult]]:
    """The calls of the last reply that has some, and the results they have."""
    found = session.state.transcript_fold.find_last_reply()
    if found is None:
        return (), {}
    reply, results = found
    return calls_of(reply.read()), results


def _as_result(call: ToolCall, given: ToolResult) -> Result:
    said = given.content
    text = said if isinstance(said, str) else "".join(one.text for one in said if isinstance(one, Text))
    return Result(
        call_id=call.id,
        name=call.name,
        content=text,
        value=given.value,
        status="failed" if given.is_error else "completed",
        replay_of=given.replay_of,
    )


def _plain(tool: AnyTool) -> dict[str, Json]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}


_SHAPES: dict[str, Callable[[AnyTool], dict[str, Json]]] = {
    "json": _plain,
    "google": _plain,
    "openai": lambda tool: {"type": "function", "function": _plain(tool)},
    "anthropic": lambda tool: {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.schema,
    },
}

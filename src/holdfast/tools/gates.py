"""The four gates before a tool runs: name, arguments, loop, policy. Pure: they decide, and record nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct

from ..core.budget import BudgetState, Reservation
from ..core.effects import Effect, Question, Repeats, count_crashes
from ..messages import Json
from ..reprs import describe_error, describe_value
from ..suggestions import closest
from .canonical import NotCanonical, fingerprint, normalise
from .declaration import AnyTool
from .policy import Policy
from .schema import BadArguments, fingerprint_of


class Ready(Struct, frozen=True, kw_only=True):
    """All gates are open. `values` is what the body gets, `args` the same in canonical form."""

    tool: AnyTool
    values: dict[str, Any]
    args: Json
    fingerprint: str


class Refused(Struct, frozen=True, kw_only=True):
    """A gate is closed; `content` says to the model what to do instead."""

    gate: str
    content: str
    fingerprint: str = ""


class Asks(Struct, frozen=True, kw_only=True):
    """A person must agree first."""

    ready: Ready
    why: str


Gated: TypeAlias = Ready | Refused | Asks


class Gates:
    """The tools by name, and what they may do."""

    def __init__(
        self, tools: Mapping[str, AnyTool], policy: Policy, *, max_repeats: int, max_crashes: int
    ) -> None:
        self._tools, self._policy = tools, policy
        self._max_repeats, self.max_crashes = max_repeats, max_crashes

    def over(self, tools: Mapping[str, AnyTool]) -> Gates:
        """The same gates over other tools."""
        return Gates(tools, self._policy, max_repeats=self._max_repeats, max_crashes=self.max_crashes)

    def check(
        self,
        name: str,
        args: Json,
        *,
        tool: AnyTool | None = None,
        repeats: Repeats,
        tried: list[Effect],
        answer: Question | None,
        budget: BudgetState | None,
    ) -> Gated:
        """Take a call through the gates, in order; `tool` is the one to call if the call brings its own."""
        if tool is None:
            tool = self._tools.get(name)
        if tool is None:
            return Refused(gate="name", content=self._unknown(name), fingerprint=_rough(name, args))
        tool = tool.for_one_call()
        corrected = UNSET if answer is None else answer.new_args
        if corrected is not UNSET:
            args = corrected
        try:
            values, canonical = tool.arguments.check(args)
        except BadArguments as bad:
            whose = "" if corrected is UNSET else ", as a person corrected them"
            content = f"{name}: invalid arguments{whose}. {bad}"
            return Refused(gate="arguments", content=content, fingerprint=_rough(name, args))
        known = fingerprint_of(name, tool.arguments, args, canonical)
        ready = Ready(tool=tool, values=values, args=canonical, fingerprint=known)
        looping = self._loop(ready, repeats, tried)
        if looping is not None:
            return Refused(gate="loop", content=looping, fingerprint=ready.fingerprint)
        if budget is not None and (breach := budget.find_breach(Reservation())) is not None:
            content = f"{name}: the budget is spent: {breach[2]:g} of {breach[1]:g} {breach[0]}"
            return Refused(gate="policy", content=content, fingerprint=ready.fingerprint)
        return self._permit(ready, answer)

    def fit(self, tool: AnyTool, args: Json) -> Ready | None:
        """Recorded arguments for the tool as it is now, past the gates; None if they no longer fit."""
        tool = tool.for_one_call()
        try:
            values, canonical = tool.arguments.check(args)
        except BadArguments:
            return None
        known = fingerprint_of(tool.name, tool.arguments, args, canonical)
        return Ready(tool=tool, values=values, args=canonical, fingerprint=known)

    def _unknown(self, name: str) -> str:
        meant = closest(name, self._tools)
        hint = f" Did you mean {meant!r}?" if meant is not None else ""
        return f"unknown tool: {name!r}.{hint} Available: {sorted(self._tools)}"

    def _loop(self, ready: Ready, repeats: Repeats, tried: list[Effect]) -> str | None:
        name = ready.tool.name
        crashes = count_crashes(tried) if tried else 0
        if crashes >= self.max_crashes:
            return (
                f"tool-call loop detected: this call of {name} was running each of the {crashes} times the "
                "process died or ended. It is not tried again; do without it, or try something else."
            )
        again = repeats.fingerprint == ready.fingerprint and repeats.count >= self._max_repeats - 1
        if again and not ready.tool.pollable:
            return (
                f"tool-call loop detected: {name} was called {repeats.count} times in a row with the same "
                "arguments and the same result. Use the result you have, change the arguments, or try "
                "another tool."
            )
        return None

    def _permit(self, ready: Ready, answer: Question | None) -> Gated:
        tool = ready.tool
        try:
            decision, why = self._policy.decide(tool, ready.args)
            wants = tool.needs_approval
            asks = bool(wants(**ready.values) if callable(wants) else wants)
        except Exception as error:  # A policy that raises does not allow.
            decision, why, asks = "deny", f"No decision: {describe_error(error)}", False
        if decision == "deny":
            return Refused(
                gate="policy", content=f"{tool.name}: denied. {why}", fingerprint=ready.fingerprint
            )
        if (decision == "ask" or asks) and not _is_agreed(ready, answer):
            return Asks(ready=ready, why=why if decision == "ask" else f"{tool.name} needs approval")
        return ready


def _is_agreed(ready: Ready, answer: Question | None) -> bool:
    """Whether a person has agreed to this call as it stands now."""
    if answer is None:
        return False
    return answer.new_args is not UNSET or answer.fingerprint in ("", ready.fingerprint)


def _rough(name: str, args: Json) -> str:
    """A fingerprint of arguments that are not valid."""
    try:
        return fingerprint(name, normalise(args))
    except NotCanonical:
        return fingerprint(name, describe_value(args))

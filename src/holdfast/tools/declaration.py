"""`@tool`: declare a function as a tool, with its side effects and its hooks."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, overload

from msgspec import Struct

from ..errors import BadInput
from ..limits import TOOL_TIMEOUT_S
from ..messages import Json
from ..reprs import attempt
from .retry import Retry
from .schema import Arguments, FunctionArguments, SchemaArguments, describe, parameters_of, wants_context

log = logging.getLogger("holdfast")
P = ParamSpec("P")
R = TypeVar("R")

SideEffect: TypeAlias = Literal["read", "write", "mutate"]
SideEffects: TypeAlias = SideEffect | Collection[SideEffect]
"""One of them, or any number; `()` is none."""
Scope: TypeAlias = Literal["session", "repeat", "run", "call", "global"]


class CallOptions(TypedDict, total=False):
    """The options of any tool, where it is declared apart from its function."""

    retry: Retry | None
    timeout_s: float | None
    needs_approval: bool | Callable[..., bool]
    pollable: bool


class EffectOptions(CallOptions, total=False):
    """The options of a tool with side effects."""

    scope: Scope | Callable[..., str] | None
    verify: Callable[..., Any] | None
    verify_after_s: float
    undo: Callable[..., Any] | None
    idempotent: bool | float | None
    harmless: Iterable[type[Exception]]


_SIDE_EFFECTS = ("read", "write", "mutate")
_SCOPES = ("session", "repeat", "run", "call", "global")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class Hook(Struct, frozen=True):
    """A function of a tool, inspected once: the body, `verify` or `undo`."""

    function: Callable[..., Any]
    is_async: bool
    takes_context: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Hook:
        """Inspect the function."""
        call = getattr(function, "__call__", None)  # noqa: B004
        # An async function behind a sync decorator is still an async one.
        is_async = any(inspect.iscoroutinefunction(one) for one in (function, call, inspect.unwrap(function)))
        return cls(function, is_async, wants_context(function))


class Tool(Generic[P, R]):
    """A declared tool. Calling it calls the function, past all gates: for its own unit tests."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        description: str,
        arguments: Arguments,
        side_effects: frozenset[str],
        scope: Scope | Callable[..., str],
        verify: Hook | None,
        verify_after_s: float,
        undo: Hook | None,
        idempotent_s: float | None,
        harmless: tuple[type[Exception], ...],
        retry: Retry,
        timeout_s: float | None,
        needs_approval: bool | Callable[..., bool],
        pollable: bool,
        is_declared: bool,
    ) -> None:
        self.function, self.name, self.description = function, name, description
        self.body = Hook.of(function)
        self.arguments = arguments
        self.side_effects, self.scope = side_effects, scope
        self.sorted_effects = tuple(sorted(side_effects))
        self.changes_the_world = bool(side_effects & {"write", "mutate"})
        """Whether running it twice could do something twice."""
        self.verify, self.verify_after_s, self.undo = verify, verify_after_s, undo
        self.idempotent_s = idempotent_s
        """For how long the service remembers keys; None if it does not."""
        self.harmless, self.retry, self.timeout_s = harmless, retry, timeout_s
        self.needs_approval, self.pollable = needs_approval, pollable
        self.is_declared = is_declared
        """Whether it says what it does to the world."""
        self.may_change = False
        """Whether another party may declare it anew while it is in use (`become`)."""

    def become(self, other: Tool[P, R]) -> None:
        """Take over everything of another tool, for whatever holds this one. Calls under way are not
        touched: each has the tool as it was when the call came in (`for_one_call`)."""
        self.__dict__.update(other.__dict__)
        self.may_change = True

    def for_one_call(self) -> Tool[P, R]:
        """The tool as it is declared now."""
        return copy.copy(self) if self.may_change else self

    def with_body(self, body: Hook, arguments: Arguments | None = None) -> Tool[P, R]:
        """The same tool with another body, and another check of arguments, for one call."""
        made = copy.copy(self)
        made.body = body
        if arguments is not None:
            made.arguments = arguments
        return made

    def in_replay(self, body: Hook) -> Tool[P, R]:
        """The same tool with another body, and without what belongs to its own: hooks and retries."""
        made = self.with_body(body)
        made.verify = made.undo = None
        made.retry = Retry(attempts=1)
        return made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        effects = ", ".join(sorted(self.side_effects)) or "pure"
        return f"<tool {self.name} ({effects})>"

    @property
    def schema(self) -> dict[str, Json]:
        """The JSON Schema of its arguments."""
        return self.arguments.schema


AnyTool: TypeAlias = Tool[..., Any]
_UNDECLARED: Any = object()
ANSWERS: Final = (
    "not Landed(result) if it happened, NotLanded() if it did not, or Unsure() if that is not known"
)
"""What a verify hook that is wrong does not return."""


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Json] | None = None,
    side_effects: SideEffects = ...,
    scope: Scope | Callable[..., str] | None = None,
    verify: Callable[..., Any] | None = None,
    verify_after_s: float = 0.0,
    undo: Callable[..., Any] | None = None,
    idempotent: bool | float | None = None,
    harmless: Iterable[type[Exception]] = (),
    retry: Retry | None = None,
    timeout_s: float | None = None,
    needs_approval: bool | Callable[..., bool] = False,
    pollable: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Json] | None = None,
    side_effects: SideEffects = _UNDECLARED,
    scope: Scope | Callable[..., str] | None = None,
    verify: Callable[..., Any] | None = None,
    verify_after_s: float = 0.0,
    undo: Callable[..., Any] | None = None,
    idempotent: bool | float | None = None,
    harmless: Iterable[type[Exception]] = (),
    retry: Retry | None = None,
    timeout_s: float | None = None,
    needs_approval: bool | Callable[..., bool] = False,
    pollable: bool = False,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Declare a tool.

    `side_effects`: `"read"`, `"write"` (sets something: doing it again changes nothing) or `"mutate"` (doing
    it again does it again), or a set of these; `()` is pure. Not declared, it counts as `"mutate"`.
    `scope`: what counts as the same operation, see the guide. `verify`: asks whether an effect in doubt
    happened. `idempotent`: the service recognises the key, for good or for some seconds. `harmless`:
    exceptions that mean that nothing was done. `undo`: takes the effect back.
    """

    def declare(body: Callable[P, R]) -> Tool[P, R]:
        own_name = str(name or getattr(body, "__name__", ""))
        if not own_name:
            raise BadInput(f"{body!r} has no name of its own: declare it with tool(name=…)")
        if not _NAME.fullmatch(own_name):
            raise BadInput(
                f"{own_name!r} is not a name for a tool: letters, digits, _ . - and at most 64 of them"
            )
        effects, chosen = _effects(own_name, side_effects, scope)
        changes = bool(effects & {"write", "mutate"})
        text, described = describe(body)
        arguments: Arguments = (
            SchemaArguments(own_name, schema, body)
            if schema is not None
            else FunctionArguments(own_name, body, described)
        )
        for role, hook in (("verify", verify), ("undo", undo)):
            if hook is not None:
                _check_hook(own_name, role, hook, arguments.names, changes)
        kept_s = _remembered_s(own_name, idempotent, effects)
        _check_times(own_name, timeout_s, verify_after_s)
        if not isinstance(retry, Retry | None):
            raise BadInput(f"tool {own_name!r}: retry={retry!r} is not a policy; write Retry(attempts=3)")
        listed = _check_harmless(own_name, harmless)
        return Tool(
            body,
            name=own_name,
            description=text if description is None else description,
            arguments=arguments,
            side_effects=effects,
            scope=chosen,
            verify=None if verify is None else Hook.of(verify),
            verify_after_s=verify_after_s,
            undo=None if undo is None else Hook.of(undo),
            idempotent_s=kept_s,
            harmless=listed,
            retry=retry or Retry(attempts=3 if changes and kept_s is not None else 1),
            timeout_s=TOOL_TIMEOUT_S if timeout_s is None and changes else timeout_s,
            needs_approval=needs_approval,
            pollable=pollable,
            is_declared=side_effects is not _UNDECLARED,
        )

    return declare if function is None else declare(function)


def warn_undeclared(name: str, scope: object, how: str) -> None:
    """Warn of a tool that declares nothing; `how` says what to write, in the words of its framework."""
    log.warning(
        "tool %r does not say what it does to the world: treated as side_effects='mutate', scope=%r. "
        "If it only reads, write %s",
        name,
        scope,
        how,
    )


def how_to_declare(name: str) -> str:
    """What to write for a tool of an agent or a registry that only reads."""
    return f'@holdfast.tool(side_effects="read"), or Agent(…, effects={{{name!r}: "read"}})'


def _effects(
    name: str, declared: str | Collection[str], scope: Scope | Callable[..., str] | None
) -> tuple[frozenset[str], Scope | Callable[..., str]]:
    if scope is not None and not callable(scope) and scope not in _SCOPES:
        raise BadInput(
            f"tool {name!r}: unknown scope {scope!r}; known are {', '.join(_SCOPES)}, or a function"
        )
    if declared is _UNDECLARED:
        warn_undeclared(name, scope or "call", f"{how_to_declare(name)}.")
        return frozenset({"mutate"}), scope or "call"
    effects = check_side_effects(f"tool {name!r}", declared)
    if scope is None:
        scope = "session" if "mutate" in effects else "repeat" if "write" in effects else "call"
    return effects, scope


def check_side_effects(who: str, declared: str | Collection[str]) -> frozenset[str]:
    """The side effects as a set, if they are known ones."""
    effects = frozenset((declared,) if isinstance(declared, str) else declared)
    unknown = effects - set(_SIDE_EFFECTS)
    if unknown:
        raise BadInput(
            f"{who}: unknown side effects {sorted(unknown)}; known are {', '.join(_SIDE_EFFECTS)}, "
            "and () for none"
        )
    return effects


def _check_hook(
    name: str, role: str, hook: Callable[..., Any], names: tuple[str, ...], changes: bool
) -> None:
    if not changes:
        raise BadInput(f"tool {name!r}: {role} makes sense only for a tool that writes or mutates")
    parameters = parameters_of(hook)
    given = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    takes_any = len(given) < len(parameters)
    if not set(given) <= set(names) or (not takes_any and len(given) < len(names)):
        raise BadInput(
            f"tool {name!r}: {role} must have the tool's own parameters ({', '.join(names)}), "
            f"with ctx first if it wants it; it has ({', '.join(given)})"
        )
    declared = attempt(lambda: inspect.unwrap(hook).__annotations__.get("return"), lambda: None)
    if role == "verify" and (declared is bool or declared == "bool"):
        raise BadInput(f"tool {name!r}: verify is declared to return a bool, {ANSWERS}")


def _remembered_s(name: str, idempotent: bool | float | None, effects: frozenset[str]) -> float | None:
    if idempotent is None:
        idempotent = "write" in effects and "mutate" not in effects
    if idempotent is True:
        return math.inf
    if idempotent is False:
        return None
    if not idempotent > 0:
        raise BadInput(f"tool {name!r}: idempotent={idempotent} seconds is no time at all")
    return float(idempotent)


def _check_times(name: str, timeout_s: float | None, verify_after_s: float) -> None:
    if timeout_s is not None and not 0 < timeout_s < math.inf:
        raise BadInput(f"tool {name!r}: timeout_s={timeout_s} must be positive and finite")
    if not 0 <= verify_after_s < math.inf:
        raise BadInput(f"tool {name!r}: verify_after_s={verify_after_s} must not be negative")


def _check_harmless(name: str, harmless: Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    listed: tuple[Any, ...] = tuple(harmless)
    for one in listed:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise BadInput(f"tool {name!r}: harmless lists types of exceptions, not {one!r}")
    return listed

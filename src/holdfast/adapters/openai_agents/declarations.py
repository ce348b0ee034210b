"""What the tools of an agent do to the world: declared by our decorator, by name, or by an MCP server."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, Unpack

from agents import FunctionTool
from agents.tool_context import ToolContext as TheirContext

from ...errors import BadInput
from ...limits import TOOL_TIMEOUT_S
from ...tools.declaration import AnyTool, EffectOptions, SideEffects
from ...tools.effects_by_name import (
    Declaration,
    EffectsByName,
    ToolEffects,
    declare,
    from_hints,
    make_options,
)
from ...tools.executor import call
from .context import current_effect

_KEY: Final = "_holdfast_effects"
"""The attribute of a tool that holds its declaration."""


class Declarer(Protocol):
    """What `effects(…)` returns: it declares a tool, or stands for one in `effects={…}`."""

    def __call__(self, tool: FunctionTool, /) -> FunctionTool: ...


NamedEffects: TypeAlias = Mapping[str, ToolEffects | Declarer]
"""What tools do, by name or glob; a declaration may also be what `effects` gives."""


@dataclass(frozen=True)
class _Declares:
    options: Mapping[str, Any] = field(repr=False)

    def __call__(self, tool: FunctionTool, /) -> FunctionTool:
        if not isinstance(tool, FunctionTool):
            raise BadInput(
                f"effects(…) declares a FunctionTool, not {tool!r}: write it above @function_tool, or around "
                "agent.as_tool(…)"
            )
        made = copy.copy(tool)
        setattr(made, _KEY, Declaration(self.options))
        return made


def effects(*, side_effects: SideEffects, **options: Unpack[EffectOptions]) -> Declarer:
    """Declare what a tool does to the world: `@effects(side_effects="mutate")` above `@function_tool`.

    The words are those of `holdfast.tool`: `scope`, `verify`, `verify_after_s`, `undo`, `idempotent`,
    `harmless`, `retry`, `timeout_s`, `needs_approval`, `pollable`. Tools of MCP servers, and others that
    cannot be decorated, are declared by name or glob: `DurableRunner.with_options(effects={"search_*":
    "read", "send": "mutate"})`.
    """
    return _Declares(make_options("effects", side_effects, options))


def as_tools(*declared: AnyTool) -> list[FunctionTool]:
    """Tools that were declared with `@holdfast.tool`: `Agent(…, tools=as_tools(charge))`.

    Their context is holdfast's, with the context of the run as `deps`.
    """
    return [_as_tool(one) for one in declared]


def _as_tool(declared: AnyTool) -> FunctionTool:
    async def run(ctx: TheirContext[Any], input_json: str) -> Any:
        values, _ = declared.arguments.check(input_json or "{}")
        return await call(declared.body, current_effect() if declared.body.takes_context else None, values)

    made = FunctionTool(
        name=declared.name,
        description=declared.description,
        params_json_schema=declared.schema,
        on_invoke_tool=run,
        strict_json_schema=False,
    )
    setattr(made, _KEY, declared)
    return made


class DeclaredTools:
    """The tools of an agent as the ledger knows them, each looked at once."""

    def __init__(self, by_name: NamedEffects | None, *, trust: bool, timeout_s: float) -> None:
        self._effects = EffectsByName(
            {name: _as_declaration(given) for name, given in by_name.items()}
            if isinstance(by_name, Mapping)
            else by_name
        )
        self._trust, self._timeout_s = trust, timeout_s
        self._known: dict[str, tuple[object, AnyTool]] = {}
        self._hinted: dict[tuple[str, bool | None, bool | None, bool | None], Declaration | None] = {}
        self._offered: set[str] = set()

    def find(self, tool: FunctionTool) -> AnyTool:
        """The tool, without a body. One that declares nothing is warned of once."""
        self._offered.add(tool.name)
        own = getattr(tool, _KEY, None)
        if own is None:
            own = _AGENT if tool._is_agent_tool else self._read_hints(tool)
        is_declared = own is not None and getattr(own, "is_declared", True)
        said = self._effects.find(tool.name, is_declared=is_declared) or own
        known = self._known.get(tool.name)
        if known is None or known[0] is not said:
            # Kept beside it, to tell it from another tool of that name.
            known = self._known[tool.name] = (said, self._make(tool, said))
        return known[1]

    def warn_of_covered(self) -> None:
        """Warn of tools that only `*` covers, before one of them is called."""
        self._effects.warn_of_covered()

    def warn_of_unmatched(self) -> None:
        """Warn of names and globs that no tool has that was offered."""
        if self._offered:
            self._effects.warn_of_unmatched(self._offered)

    def _read_hints(self, tool: FunctionTool) -> Declaration | None:
        """What an MCP server says of its tool."""
        hints = tool.mcp_annotations
        if hints is None:
            return None
        read_only, idempotent, destructive = (_get_hint(hints, name) for name in _HINTS)
        key = tool.name, read_only, idempotent, destructive
        if key not in self._hinted:
            self._hinted[key] = from_hints(
                reads_only=read_only,
                is_idempotent=idempotent,
                is_destructive=destructive,
                trust=self._trust,
            )
        return self._hinted[key]

    def _make(self, tool: FunctionTool, said: Any) -> AnyTool:
        if said is None:
            how = (
                '@effects(side_effects="read") above @function_tool, or '
                f'DurableRunner.with_options(effects={{{tool.name!r}: "read"}})'
            )
            said = self._effects.get_undeclared(tool.name, how, self._offered)
        if isinstance(said, Declaration):
            made = declare(tool.name, list(tool.params_json_schema.get("properties", ())), said.options)
            limit_s = said.options.get("timeout_s")
        else:
            made = copy.copy(said)
            limit_s = made.timeout_s if made.timeout_s != TOOL_TIMEOUT_S else None
        if made.changes_the_world and limit_s is None:
            made.timeout_s = self._timeout_s
        return made


_HINTS: Final = (
    ("read_only_hint", "readOnlyHint"),
    ("idempotent_hint", "idempotentHint"),
    ("destructive_hint", "destructiveHint"),
)


def _get_hint(hints: object, names: tuple[str, str]) -> bool | None:
    """A hint, by its name in either generation of the `mcp` package."""
    values = (getattr(hints, name, None) for name in names)
    return next((value for value in values if value is not None), None)


_AGENT: Final = Declaration({"side_effects": ()})
"""An agent as a tool: its own run is on record, so running it again repeats nothing."""


def _as_declaration(given: object) -> object:
    """What `effects` gave, as a declaration; anything else as it is."""
    return Declaration(given.options) if isinstance(given, _Declares) else given

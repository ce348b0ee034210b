"""What the tools of an agent do to the world: declared by metadata, by our decorator, or by an MCP server."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias, Unpack

from pydantic_ai import RunContext
from pydantic_ai import Tool as TheirTool
from pydantic_ai.tools import ToolDefinition

from ...limits import TOOL_TIMEOUT_S
from ...tools.declaration import AnyTool, EffectOptions, SideEffects
from ...tools.effects_by_name import Declaration, EffectsByName, ToolEffects, declare, make_options
from ...tools.executor import call
from .context import current_effect

KEY: Final = "holdfast"
"""Under which a tool's metadata holds its declaration."""

Options: TypeAlias = Mapping[str, Any]
NamedEffects: TypeAlias = Mapping[str, ToolEffects | Mapping[str, Any]]
"""What tools do, by name or glob; a declaration may also be what `effects` gives."""
_INTERNAL: Final = frozenset({"capability-load", "tool-search"})
"""Kinds of tools with which pydantic-ai itself shows the model more tools."""


def effects(*, side_effects: SideEffects, **options: Unpack[EffectOptions]) -> dict[str, Any]:
    """Metadata for a tool of pydantic-ai: `@agent.tool_plain(metadata=effects(side_effects="mutate"))`.

    The words are those of `holdfast.tool`: `scope`, `verify`, `verify_after_s`, `undo`, `idempotent`,
    `harmless`, `retry`, `timeout_s`, `needs_approval`, `pollable`. For tools of an MCP server or another
    toolset, declare them by name or glob: `Durable(store, effects={"search_*": "read", "send":
    mutate(verify=…)})`.
    """
    return {KEY: make_options("effects", side_effects, options)}


def as_tools(*declared: AnyTool) -> list[TheirTool[Any]]:
    """Tools that were declared with `@holdfast.tool`: `Agent(…, tools=as_tools(charge))`.

    Their context is holdfast's, with the `deps` of the run.
    """
    return [_as_tool(one) for one in declared]


def _as_tool(declared: AnyTool) -> TheirTool[Any]:
    async def run(ctx: RunContext[Any], /, **args: Any) -> Any:
        values, _ = declared.arguments.check(args)
        return await call(declared.body, current_effect() if declared.body.takes_context else None, values)

    made: TheirTool[Any] = TheirTool.from_schema(
        run,
        name=declared.name,
        description=declared.description,
        json_schema=declared.schema,
        takes_ctx=True,
    )
    made.metadata = {KEY: declared}
    return made


class Declarations:
    """The tools of an agent as the ledger knows them, each looked at once."""

    def __init__(self, by_name: NamedEffects, timeout_s: float) -> None:
        is_mapping = isinstance(by_name, Mapping)
        self._effects = EffectsByName(
            {name: _from_metadata(given) for name, given in by_name.items()} if is_mapping else by_name
        )
        self._timeout_s = timeout_s
        self._known: dict[tuple[str, int], tuple[object, AnyTool]] = {}

    def find(self, definition: ToolDefinition, offered: Collection[str] | None = None) -> AnyTool:
        """The tool, without a body. One that declares nothing is warned of once; `offered` are all names."""
        metadata = definition.metadata or {}
        named = self._find_named(definition)
        said = metadata.get(KEY) if named is None else named.options
        place = (definition.name, id(said))
        known = self._known.get(place)
        if known is None:
            # Kept beside it, so that its id stays its own.
            known = self._known[place] = (said, self._make(definition, said, metadata, offered))
        return known[1]

    def look_at(self, definitions: Iterable[ToolDefinition]) -> None:
        """Warn of tools that only `*` covers."""
        for one in definitions:
            self._find_named(one)
        self._effects.warn_of_covered()

    def warn_of_unmatched(self, offered: Collection[str]) -> None:
        """Warn of names and globs that none of the tools has that the agent was offered in a run."""
        self._effects.warn_of_unmatched(offered)

    def _find_named(self, definition: ToolDefinition) -> Declaration | None:
        said = (definition.metadata or {}).get(KEY)
        is_declared = (
            definition.tool_kind in _INTERNAL if said is None else getattr(said, "is_declared", True)
        )
        return self._effects.find(definition.name, is_declared=is_declared)

    def _make(
        self,
        definition: ToolDefinition,
        said: Any,
        metadata: Mapping[str, Any],
        offered: Collection[str] | None,
    ) -> AnyTool:
        name, names = definition.name, list(definition.parameters_json_schema.get("properties", ()))
        if said is None and definition.tool_kind in _INTERNAL:
            said = {"side_effects": ()}
        if said is None:
            said = _hinted(metadata.get("annotations"))
        if said is None:
            how = f'metadata=effects(side_effects="read"), or Durable(…, effects={{{name!r}: "read"}})'
            said = self._effects.get_undeclared(name, how, offered).options
        if isinstance(said, Mapping):
            made = declare(name, names, said)
            limit_s = said.get("timeout_s")
        else:
            made = copy.copy(said)
            limit_s = made.timeout_s if made.timeout_s != TOOL_TIMEOUT_S else None
        if made.changes_the_world and limit_s is None:
            made.timeout_s = self._timeout_s
        return made


def _from_metadata(given: object) -> object:
    """What `effects` gave as metadata, as a declaration; anything else as it is."""
    found = given.get(KEY) if isinstance(given, Mapping) else None
    return Declaration(found) if isinstance(found, Mapping) else given


def _hinted(annotations: Mapping[str, Any] | None) -> Options | None:
    """What an MCP server says about its tool."""
    if not annotations:
        return None
    if annotations.get("readOnlyHint"):
        return {"side_effects": {"read"}}
    if annotations.get("idempotentHint"):
        return {"side_effects": {"write"}, "scope": "call"}
    if annotations.get("destructiveHint") is not None:
        return {"side_effects": {"mutate"}, "scope": "call"}
    return None

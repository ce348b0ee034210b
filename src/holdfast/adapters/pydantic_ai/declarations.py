"""What the tools of an agent do to the world: declared by metadata, by our decorator, or by an MCP server."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai import Tool as TheirTool
from pydantic_ai.tools import ToolDefinition

from ...errors import BadInput
from ...limits import TOOL_TIMEOUT_S
from ...messages import Json
from ...tools.declaration import AnyTool, Scope, SideEffects, tool
from ...tools.executor import call
from ...tools.retry import Retry
from ...tools.schema import parameters_of
from .context import current_effect

KEY: Final = "holdfast"
"""Under which a tool's metadata holds its declaration."""

Options: TypeAlias = Mapping[str, Any]
_INTERNAL: Final = frozenset({"capability-load", "tool-search"})
"""Kinds of tools with which pydantic-ai itself shows the model more tools."""


def effects(
    *,
    side_effects: SideEffects,
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
) -> dict[str, Any]:
    """Metadata for a tool of pydantic-ai: `@agent.tool_plain(metadata=effects(side_effects="mutate"))`.

    The words are those of `holdfast.tool`. For tools of an MCP server or another toolset, hand it over by the
    tool's name: `Durable(store, effects={"send": effects(…)})`.
    """
    given = {
        "side_effects": side_effects,
        "scope": scope,
        "verify": verify,
        "verify_after_s": verify_after_s,
        "undo": undo,
        "idempotent": idempotent,
        "harmless": tuple(harmless),
        "retry": retry,
        "timeout_s": timeout_s,
        "needs_approval": needs_approval,
        "pollable": pollable,
    }
    hooks = [hook for hook in (verify, undo) if hook is not None]
    names = parameters_of(hooks[0]) if hooks else ()
    # What makes no sense is refused here, and not in the middle of a run.
    _declare("tool", [one.name for one in names if one.kind is not one.VAR_KEYWORD], given)
    return {KEY: given}


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

    def __init__(self, by_name: Mapping[str, Mapping[str, Any]], timeout_s: float) -> None:
        for name, given in by_name.items():
            if KEY not in given:
                raise BadInput(f"effects={{{name!r}: …}}: write effects(side_effects=…) there")
        self._by_name, self._timeout_s = by_name, timeout_s
        self._known: dict[tuple[str, int], tuple[object, AnyTool]] = {}

    def find(self, definition: ToolDefinition) -> AnyTool:
        """The tool, without a body. One that declares nothing is warned of once."""
        metadata = definition.metadata or {}
        said = self._by_name.get(definition.name, metadata).get(KEY)
        place = (definition.name, id(said))
        known = self._known.get(place)
        if known is None:
            # Kept beside it, so that its id stays its own.
            known = self._known[place] = (said, self._make(definition, said, metadata))
        return known[1]

    def _make(self, definition: ToolDefinition, said: Any, metadata: Mapping[str, Any]) -> AnyTool:
        names = list(definition.parameters_json_schema.get("properties", ()))
        if said is None and definition.tool_kind in _INTERNAL:
            said = {"side_effects": ()}
        if said is None:
            said = _hinted(metadata.get("annotations"))
        if isinstance(said, Mapping) or said is None:
            made = _declare(definition.name, names, said or {})
            limit_s = None if said is None else said.get("timeout_s")
        else:
            made = copy.copy(said)
            limit_s = made.timeout_s if made.timeout_s != TOOL_TIMEOUT_S else None
        if made.changes_the_world and limit_s is None:
            made.timeout_s = self._timeout_s
        return made


def _declare(name: str, names: Iterable[str], given: Options) -> AnyTool:
    def body(**args: Any) -> None:
        raise AssertionError("each call brings its own body")

    schema: dict[str, Json] = {"type": "object", "properties": {one: {} for one in names}}
    options = {key: value for key, value in given.items() if value is not None}
    made: AnyTool = tool(name=_plain(name), description="", schema=schema, **options)(body)
    made.name = name
    return made


def _plain(name: str) -> str:
    """The name in the alphabet of ours; servers have others."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return f"t_{kept}"[:64] if not kept or kept[0].isdigit() else kept[:64]


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

"""A text where a list belongs is refused: taken for a list, it would be its letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.adapters.langgraph import CheckedSerializer, durable_tools
from holdfast.adapters.pydantic_ai import effects
from holdfast.agents.scripted_model import ScriptedModel
from holdfast.core.values import Values

TEXT: Any = "search"


def search(query: str) -> str:
    """Look something up."""
    return query


@pytest.mark.parametrize(
    "take",
    [
        lambda: holdfast.Registry(TEXT),
        lambda: holdfast.Agent(ScriptedModel([]), tools=TEXT),
        lambda: holdfast.agents.Thread(agents=TEXT),
        lambda: holdfast.workers.Worker(holdfast.open_store("memory:"), TEXT),
        lambda: Values(TEXT),
        lambda: holdfast.tool(side_effects=TEXT)(search),
        lambda: holdfast.tool(side_effects=(), harmless=TEXT)(search),
        lambda: holdfast.tools.deny(side_effects=TEXT),
        lambda: holdfast.tools.paths_inside("/", ["path"]),  # type: ignore[arg-type]
        lambda: effects(side_effects=TEXT),
        lambda: CheckedSerializer(TEXT),
        lambda: durable_tools(TEXT, store=holdfast.open_store("memory:")),
    ],
)
def test_a_text_is_not_taken_for_a_list(take: Callable[[], object]) -> None:
    """Wherever a list of names, tools, agents, types or side effects is taken."""
    with pytest.raises(holdfast.errors.BadInput):
        take()

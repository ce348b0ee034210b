"""A run is killed around each commit of its session, and made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..crash.fork_server import Warm
from .killed_sessions import play, read

KILLS = [(0, False), (0, True), (1, True), (2, False), (2, True)]
"""The commits of a run (its input, a turn with two calls, the answer), with whether that one has landed."""
TURNS = [
    "user", "function_call", "function_call", "function_call_output", "function_call_output", "assistant",
]  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
def test_killed_at_any_commit_the_session_serves_the_next_run(
    warm: Warm, quick_path: Path, scheme: str, streamed: bool
) -> None:
    """A turn is stored whole or not at all, a message that has no answer stands once, and no model is given a
    call without its output or an output without its call."""
    for number, landed in KILLS:
        trial = quick_path / f"{number} {landed}"
        trial.mkdir()
        with warm.child(play, str(trial), scheme, streamed=streamed, kill=number, late=landed) as child:
            assert child.outcome() is None, "it was not killed"
        left = kinds_of(read(str(trial), scheme))
        assert left == TURNS[: (0, 1, 5, 6)[number + landed]]
        found = warm.call(play, str(trial), scheme, streamed=streamed)
        assert found["commits"] <= 3, "there are commits at which it was not killed"
        is_answered = len(left) > 1
        assert kinds_of(found["items"]).count("user") == 1 + is_answered
        for given in found["inputs"]:
            calls = [item["call_id"] for item in given if item.get("type") == "function_call"]
            outputs = [item["call_id"] for item in given if item.get("type") == "function_call_output"]
            assert calls == outputs


def kinds_of(items: list[Any]) -> list[str]:
    """Who said it, or what it is."""
    return [item.get("role") or item["type"] for item in items]

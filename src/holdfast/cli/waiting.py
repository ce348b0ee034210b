"""What waits for a person: calls to approve, and calls in doubt."""

from __future__ import annotations

from typing import Any

from ..session.store import Store
from .shapes import shape_doubt, shape_question


async def find_waiting(store: Store) -> list[dict[str, Any]]:
    """Over the whole store, the oldest first."""
    found = [
        {**shape_doubt(doubt.session, doubt.effect), "operation": doubt.operation}
        async for doubt in store.in_doubt()
    ]
    async for head in store.sessions():
        if head.waiting:
            questions = (await store.load(head.session)).facts.effects.questions.values()
            found += [shape_question(head.session, question) for question in questions]
    return sorted(found, key=lambda one: (one["since"], one["entry"]))

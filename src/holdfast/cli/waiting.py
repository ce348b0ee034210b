"""What waits for a person: calls to approve, and calls in doubt."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import Corrupt
from ..store.store import Store
from .json_views import shape_doubt, shape_question

log = logging.getLogger("holdfast")


async def find_waiting(store: Store) -> list[dict[str, Any]]:
    """Over the whole store, the oldest first."""
    found = [
        {**shape_doubt(doubt.session, doubt.effect), "operation": doubt.operation}
        async for doubt in store.in_doubt()
    ]
    async for head in store.sessions():
        if head.waiting:
            try:
                questions = (await store.load(head.session)).facts.effects.questions.values()
            except Corrupt as error:  # One damaged session must not hide what the others wait for.
                log.warning("session %s is left out: %s", head.session, error)
                continue
            found += [shape_question(head.session, question) for question in questions]
    return sorted(found, key=lambda one: (one["since"], one["entry"]))

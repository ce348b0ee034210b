"""What the world's log and the journals must say, whoever was killed where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from holdfast import Store
from holdfast.records import Effect, find_problems

from .effect_log import UNDO, Deed, World
from .matrix_tools import IDEMPOTENT, VERIFIED


class Seen(Struct, frozen=True):
    """The ledgers of all sessions by key, as anybody can read them, and what is reported as in doubt."""

    rows: Mapping[str, list[Effect]]
    doubts: Mapping[str, Effect]

    def has(self, key: str, *status: str) -> bool:
        """Whether a row with this key has one of these statuses."""
        return any(row.status in status for row in self.rows.get(key, ()))


async def look(store: Store) -> Seen:
    """Read everything, without any lease."""
    rows: dict[str, list[Effect]] = {}
    async for head in store.sessions():
        for row in (await store.load(head.session)).facts.effects.rows.values():
            if row.changes_the_world:
                rows.setdefault(row.key, []).append(row)
    return Seen(rows, {doubt.effect.key: doubt.effect async for doubt in store.in_doubt()})


def find_losses(seen: Seen, world: World, acks: Path) -> Iterable[str]:
    """Holds at any moment at which nobody is at work, also right after a kill."""
    for deed in world.deeds("landed"):
        if deed.key not in seen.rows:
            yield f"it happened without an intent: {deed}"
        elif not seen.has(deed.key, "completed", "undone", "gave_up") and deed.key not in seen.doubts:
            statuses = [row.status for row in seen.rows[deed.key]]
            yield f"it happened, and the ledger says {statuses} and reports no doubt: {deed}"
    if acks.exists():
        for line in acks.read_bytes().splitlines():
            for key in json.loads(line):
                if not seen.has(key, "completed", "undone"):
                    yield f"an outcome that was handed on is lost: {seen.rows.get(key)}"


def find_repeats(completed: Iterable[str], before: list[Deed], after: list[Deed]) -> Iterable[str]:
    """What was completed before a life began is not done again in it."""
    old, new = (Counter(deed.key for deed in deeds) for deeds in (before, after))
    for key in completed:
        if new[key] > old[key]:
            yield f"completed, and done again: {[deed for deed in after if deed.key == key]}"


def find_neglected(seen: Seen) -> Iterable[str]:
    """A tool that can find out by itself leaves nothing in doubt once it was asked."""
    for row in seen.doubts.values():
        if row.undoes is None and row.tool in VERIFIED | IDEMPOTENT:
            yield f"nobody asked the tool: {row}"


def count_problems(
    world: World, expected: Mapping[str, int], final: Mapping[str, str], perhaps: Collection[str]
) -> Iterable[str]:
    """In the end: every effect as often as intended, under a key of its own each time. What happened only
    `perhaps` did so at most as often."""
    landed: dict[str, list[Deed]] = {}
    for deed in world.deeds("landed"):
        landed.setdefault(f"{deed.tool} {deed.arg}", []).append(deed)
    for name in {*expected, *landed}:
        deeds, intended = landed.get(name, []), expected.get(name, 0)
        keys = {deed.key for deed in deeds}
        if name in perhaps:
            intended = min(intended, len(deeds))
        if len(keys) != intended:
            yield f"{name}: intended {intended} times, happened under {len(keys)} keys: {deeds}"
        elif len(deeds) != intended and (deeds[0].tool not in IDEMPOTENT or UNDO in deeds[0].tool):
            yield f"{name}: intended {intended} times, happened {len(deeds)} times: {deeds}"
    for register, value in final.items():
        writes = [deed.arg for deed in world.deeds("landed") if deed.arg.startswith(f"{register}=")]
        if not writes or writes[-1] != f"{register}={value}":
            yield f"{register} should be {value} in the end: {writes}"


async def find_bad_transcripts(store: Store, *, may_doubt: bool) -> list[str]:
    """In the end, every session can go on, and nothing waits or (`may_doubt` aside) is in doubt."""
    problems: list[str] = []
    async for head in store.sessions():
        state = await store.load(head.session)
        wrong = [*state.problems, *find_problems(state.transcript)]
        problems += [f"{head.session}: {why}" for why in wrong]
        if head.waiting or (not may_doubt and (head.in_doubt or state.in_doubt)):
            problems.append(f"{head.session}: {head.in_doubt} in doubt, {head.waiting} wait")
        if head.open_run is not None:
            problems.append(f"{head.session}: the run {head.open_run} has no end")
    return problems

"""A fleet to which everything happens: workers are killed and stopped at random, and more than that."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from holdfast import Store, open_store
from holdfast.errors import StoreFailed
from tests.crash.fork_server import Child, Warm

from .effect_service import World
from .fleet_agents import AGENT, work
from .journals import list_zombie_lines

LEASE_S = 2.0
_STOPPED_S = 2.5 * LEASE_S
_END_S = 240.0


class Chaos:
    """Some workers, many sessions, and trouble for a while. Made again with the same seed, it chooses alike.

    `troubles` are kinds of trouble beside kills and stops, by name.
    """

    def __init__(
        self,
        warm: Warm,
        url: str,
        folder: Path,
        seed: int,
        *,
        workers: int,
        sessions: int,
        steps: int,
        pause_s: float,
        troubles: Mapping[str, Callable[[random.Random], None]],
    ) -> None:
        self._warm, self._url, self._folder = warm, url, folder
        self._choose = random.Random(seed)
        self._seed, self._steps, self._pause_s = seed, steps, pause_s
        self._names = [f"s{number:03}" for number in range(sessions)]
        self._world = World(folder / "world.db").make()
        self._troubles = troubles
        self._counts: Counter[str] = Counter()
        self._workers = [self._start() for _ in range(workers)]
        self._asleep: dict[Child, float] = {}

    def _start(self) -> Child:
        return self._warm.start(
            work,
            self._url,
            str(self._folder / "world.db"),
            steps=self._steps,
            lease_s=LEASE_S,
            pause_s=self._pause_s,
            silent=True,
        )

    def run(self, seconds: float, *, calm_down: Callable[[], None] = lambda: None) -> str:
        """Everything; a line of counts. `calm_down` is called when there has been enough trouble."""
        try:
            anyio.run(self._submit)
            began_s = time.monotonic()
            while time.monotonic() < began_s + seconds:
                # The moment is what is random here: nothing is being waited for.
                time.sleep(self._choose.uniform(0.05, 0.6))
                self._make_trouble()
            self._wake_up(later=False)
            calm_down()
            self._revive()
            anyio.run(self._wait_for_the_end)
        finally:
            for child in self._workers:
                child.end()
        anyio.run(self._check)
        took_s = time.monotonic() - began_s
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self._counts.items()))
        return f"seed {self._seed}: {len(self._names)} sessions in {took_s:.0f} s; {counted}"

    # -- trouble -------------------------------------------------------------------------------------

    def _make_trouble(self) -> None:
        self._wake_up(later=True)
        self._revive()
        kind = self._choose.choice([*["kill"] * 4, *["stop"] * 2, *self._troubles])
        awake = [child for child in self._workers if child not in self._asleep]
        if kind == "kill" and awake:
            child = self._choose.choice(awake)
            child.end()
            self._workers[self._workers.index(child)] = self._start()
        elif kind == "stop" and len(awake) > 1:
            child = self._choose.choice(awake)
            child.kill(signal.SIGSTOP)
            self._asleep[child] = time.monotonic() + self._choose.uniform(0.1, _STOPPED_S)
        elif kind in self._troubles:
            self._troubles[kind](self._choose)
        else:
            return
        self._counts[f"× {kind}"] += 1

    def _revive(self) -> None:
        """As whoever supervises them would: one that finds no server when it starts ends."""
        for place, child in enumerate(self._workers):
            if not child.is_running:
                child.end()
                self._workers[place] = self._start()
                self._counts["× start again"] += 1

    def _wake_up(self, *, later: bool) -> None:
        now_s = time.monotonic()
        for child, until_s in list(self._asleep.items()):
            if until_s <= now_s or not later:
                child.kill(signal.SIGCONT)
                del self._asleep[child]

    # -- work and its end ----------------------------------------------------------------------------

    async def _submit(self) -> None:
        async with open_store(self._url) as store:
            for name in self._names:
                # At least twice, as somebody does who got no answer.
                sent = 0
                while sent < 2:
                    try:
                        await store.submit(name, "build a wall", agent=AGENT, key="once")
                        sent += 1
                    except StoreFailed:
                        self._counts["× submit again"] += 1

    async def _wait_for_the_end(self) -> None:
        async with open_store(self._url, lease_s=LEASE_S) as store:
            deadline_s = time.monotonic() + _END_S
            while left := await self._list_unfinished(store):
                assert time.monotonic() < deadline_s, f"seed {self._seed}: not complete: {left[:5]}"
                await anyio.sleep(0.2)

    async def _list_unfinished(self, store: Store) -> Sequence[str]:
        return [
            f"{head.session} {head.status} {head.reason} {head.failures} {head.lease}"
            async for head in store.sessions()
            if head.status != "completed" or head.due is not None
        ]

    async def _check(self) -> None:
        done: dict[str, list[str]] = {name: [] for name in self._names}
        for deed in self._world.deeds():
            done[deed.session].append(deed.what)
        wall = [f"brick {number}" for number in range(self._steps)]
        wrong = {name: what for name, what in done.items() if what != wall}
        assert not wrong, f"seed {self._seed}: {wrong}"
        async with open_store(self._url) as store:
            assert {head.session async for head in store.sessions()} == set(self._names)
            assert await list_zombie_lines(store) == []
            leases = runs = 0
            async for head in store.sessions():
                state = await store.load(head.session)
                assert [message.role for message in state.transcript].count("user") == 1
                runs += len(state.facts.runs)
                kinds = [entry.kind async for entry in store.tail(head.session, follow=False)]
                leases += kinds.count("lease.taken")
        self._counts["effects, each once"] = sum(map(len, done.values()))
        self._counts["refused by the world"] = self._world.count_refusals()
        self._counts["leases"], self._counts["runs"] = leases, runs

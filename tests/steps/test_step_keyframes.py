"""A step store that begins with a keyframe finds the same as one that reads the whole journal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic_ai.messages import ModelRequest, UserPromptPart

import holdfast
from holdfast.adapters.pydantic_ai.step_fold import Steps
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.core.codec import Page
from holdfast.core.entries import SessionErased
from holdfast.core.session_state import AdapterFold, read_keyframe
from holdfast.drivers.contract import Driver
from holdfast.errors import Corrupt
from holdfast.ids import SessionId
from holdfast.store import deletion
from tests.internals import engine_of, writer_of

from .example_histories import Url, at, effect, event, history, run, snapshot

_LIMITS = "holdfast.adapters.leaseless_journal"
_RUNS = ["r0", "r1", "r2", "r3"]
_SESSION = SessionId("steps-c")


@contextmanager
def keyframes(entries: int = 1) -> Iterator[None]:
    """Keyframes after as many entries."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"{_LIMITS}.ADAPTER_KEYFRAME_ENTRIES_MIN", entries)
        patched.setattr(f"{_LIMITS}.ADAPTER_KEYFRAME_GROWTH", 0.0)
        yield


@contextmanager
def keyframe_is(driver: Driver, data: bytes | None) -> Iterator[None]:
    """Every session has this keyframe, or none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "find_keyframe", lambda session: data)
        yield


async def look_now(steps: HoldfastStepStore) -> list[Any]:
    """What is asked for in order to go on."""
    found: list[Any] = []
    for run_id in _RUNS:
        found.append(await steps.latest_snapshot(run_id=run_id, include_interrupted=True))
        found.append(await steps.latest_snapshot(run_id=run_id))
        found.append(await steps.list_unresolved_tool_effects(run_id=run_id))
        found.append(await steps.get_run(run_id=run_id))
    return found


async def look_back(steps: HoldfastStepStore) -> list[Any]:
    """What has been."""
    found: list[Any] = []
    for run_id in _RUNS:
        # Of two stores that tell of one run at once, each knows first what it told itself.
        found.append(sorted(await steps.list_events(run_id=run_id), key=repr))
        found.append(await steps.list_snapshots(run_id=run_id, include_interrupted=True))
        found += [
            await steps.get_tool_effect(run_id=run_id, tool_call_id=f"call_{call}") for call in range(3)
        ]
    return found


class Work:
    """Does at random what can be done with the runs of a conversation, by two step stores."""

    def __init__(self, store: holdfast.Store, chance: random.Random) -> None:
        self.store, self._chance = store, chance
        self.stores = [HoldfastStepStore(store), HoldfastStepStore(store)]
        self._registered: set[str] = set()
        self._number = 0

    async def step(self) -> None:
        """One operation."""
        steps, run_id = self._chance.choice(self.stores), self._chance.choice(_RUNS)
        operations: list[Callable[..., Any]] = [self._save] * 4 + [self._happen] * 3 + [self._affect] * 2
        operations += [self._begin, self._end, self._restart, self._erase]
        await self._chance.choice(operations)(steps, run_id)

    async def _begin(self, steps: HoldfastStepStore, run_id: str) -> None:
        if run_id not in self._registered:
            await steps.register_run(run(run_id, conversation_id="c", registration_id=f"reg {run_id}"))
            self._registered.add(run_id)

    async def _end(self, steps: HoldfastStepStore, run_id: str) -> None:
        await self._begin(steps, run_id)
        await steps.append_event(event(run_id, "run_completed", idempotency_key=self._key(run_id)))

    def _key(self, tail: str) -> str | None:
        self._number += self._chance.choice([0, 1, 1, 1])
        return self._chance.choice([None, f"{self._number}:{tail}", f"odd {self._number // 2}"])

    async def _save(self, steps: HoldfastStepStore, run_id: str) -> None:
        await self._begin(steps, run_id)
        state = self._chance.choice(["complete", "complete", "interrupted"])
        messages = history(self._chance.randint(0, 6))
        await steps.save_snapshot(
            snapshot(run_id, messages, state=state, idempotency_key=self._key(f"{len(messages)}:{state}"))
        )

    async def _happen(self, steps: HoldfastStepStore, run_id: str) -> None:
        await self._begin(steps, run_id)
        kind = self._chance.choice(
            ["model_request_started", "model_request_completed", "tool_call_completed"]
        )
        call = self._chance.choice([None, "call_1"])
        await steps.append_event(
            event(run_id, kind, tool_call_id=call, idempotency_key=self._key(f"1:{kind}:{call or ''}"))
        )

    async def _affect(self, steps: HoldfastStepStore, run_id: str) -> None:
        await self._begin(steps, run_id)
        status = self._chance.choice(["started", "completed", "failed"])
        await steps.record_tool_effect(effect(run_id, f"call_{self._chance.randint(0, 2)}", status))

    async def _restart(self, steps: HoldfastStepStore, run_id: str) -> None:
        await self.flush()
        self.stores[self.stores.index(steps)] = HoldfastStepStore(self.store)

    async def _erase(self, steps: HoldfastStepStore, run_id: str) -> None:
        """Only now and then: nothing of before can be gone on from after that."""
        if self._registered and self._chance.random() < 0.2:
            await self.flush()
            await self.store.clean("steps-c", checkpoints=False)
            # Those that have read it have it in memory.
            self.stores = [HoldfastStepStore(self.store), HoldfastStepStore(self.store)]

    async def flush(self) -> None:
        """Write the events that only inform: they go with the next one that is waited for."""
        for steps in self.stores:
            await self._begin(steps, "r0")
            await steps.append_event(event("r0", "model_request_started"))


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happened_a_keyframe_tells_the_same(seed: int) -> None:
    """The stores that wrote, one that begins with a keyframe, and one that folds all, agree."""
    chance = random.Random(seed)
    with keyframes(chance.randint(1, 9)):
        async with holdfast.open_store("memory:") as store:
            work = Work(store, chance)
            driver = engine_of(store).driver
            for _ in range(chance.randint(1, 30)):
                await work.step()
            await work.flush()
            wrote = [(await look_now(one), await look_back(one)) for one in work.stores]
            with keyframe_is(driver, None):
                whole = HoldfastStepStore(store)
                expected = await look_now(whole), await look_back(whole)
            fresh = HoldfastStepStore(store)
            assert (await look_now(fresh), await look_back(fresh)) == expected
            back_first = HoldfastStepStore(store)
            assert (await look_back(back_first), await look_now(back_first)) == expected[::-1]
            assert wrote == [expected, expected]
            # It goes on as one that has read it all.
            for steps in (HoldfastStepStore(store), whole):
                await steps.save_snapshot(snapshot("r0", history(7)))
            assert await look_back(HoldfastStepStore(store)) == await look_back(whole)


class Counting:
    """How many entries and bytes of what was said a driver gives out."""

    def __init__(self, driver: Driver, patch: pytest.MonkeyPatch) -> None:
        self.chunks = self.said = 0
        self._read = driver.read
        patch.setattr(driver, "read", self.read)

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        page = self._read(session, after, limit, said=said)
        self.chunks += page.count
        self.said += len(page.said or b"")
        return page


async def _count_reads(url: Url, patch: pytest.MonkeyPatch, runs: int) -> tuple[int, int]:
    """What the last run of a conversation with so many reads of it, when another process continues it."""
    async with holdfast.open_store(url) as store:
        steps = HoldfastStepStore(store)
        for number in range(runs):
            run_id = f"run {number}"
            await steps.register_run(run(run_id, conversation_id="c"))
            for step in range(4):
                asked = ModelRequest(
                    parts=[UserPromptPart(content=f"Go {number} " + "x" * 500, timestamp=at(0))]
                )
                messages = [asked, *history(step)[1:]]
                await steps.save_snapshot(
                    snapshot(run_id, messages, idempotency_key=f"{step}:{step}:complete")
                )
                await steps.append_event(event(run_id, "model_request_started"))
            if number < runs - 1:
                await steps.append_event(event(run_id, "run_completed"))
    async with holdfast.open_store(url) as store:
        counting = Counting(engine_of(store).driver, patch)
        found = await HoldfastStepStore(store).latest_snapshot(run_id=f"run {runs - 1}")
        assert found is not None
        assert len(found.messages) == 7
        return counting.chunks, counting.said


@pytest.mark.parametrize("scheme", ["sqlite"])
async def test_opening_costs_what_is_alive(
    scheme: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs the conversation had before."""
    with keyframes(40):
        few = await _count_reads(f"{scheme}:{tmp_path}/few", monkeypatch, 10)
        many = await _count_reads(f"{scheme}:{tmp_path}/many", monkeypatch, 60)
    assert many[0] < 3 * few[0]
    assert many[1] < 3 * few[1]


async def test_a_run_that_has_ended_is_found_in_the_whole_journal(store_url: Url) -> None:
    """Nothing that a keyframe leaves out is taken for missing: not for reading, and not for writing."""
    with keyframes():
        async with holdfast.open_store(store_url) as store:
            steps = HoldfastStepStore(store)
            for run_id in ("a", "b"):
                await steps.register_run(run(run_id, conversation_id="c"))
                await steps.save_snapshot(snapshot(run_id, history(2), idempotency_key="1:5:complete"))
                await steps.append_event(event(run_id, "run_completed", idempotency_key="7:1:run_completed:"))
        async with holdfast.open_store(store_url) as store:
            steps = HoldfastStepStore(store)
            await steps.save_snapshot(snapshot("a", history(1), idempotency_key="1:5:complete"))
            await steps.append_event(event("a", "run_completed", idempotency_key="7:1:run_completed:"))
            await steps.append_event(event("b", "run_failed", idempotency_key="8:1:run_failed:"))
            await steps.record_tool_effect(effect("b", "call_9"))
        async with holdfast.open_store(store_url) as store:
            steps = HoldfastStepStore(store)
            assert [len(one.messages) for one in await steps.list_snapshots(run_id="a")] == [5]
            assert [one.kind for one in await steps.list_events(run_id="a")] == ["run_completed"]
            assert [one.kind for one in await steps.list_events(run_id="b")] == [
                "run_completed",
                "run_failed",
            ]
            assert [one.tool_call_id for one in await steps.list_unresolved_tool_effects(run_id="b")] == [
                "call_9"
            ]
            with pytest.raises(holdfast.errors.RunExists):
                await steps.register_run(run("a", conversation_id="c"))


async def test_messages_that_were_erased_meanwhile_are_not_gone_on_from(store_url: Url) -> None:
    """The keyframe was read before, the messages were not."""
    with keyframes():
        async with holdfast.open_store(store_url) as store:
            steps = HoldfastStepStore(store)
            await steps.register_run(run("a", conversation_id="c"))
            await steps.save_snapshot(snapshot("a", history(2)))
            late = HoldfastStepStore(store)
            assert await late.get_run(run_id="a") is not None
            await store.clean("steps-c", checkpoints=False)
            assert await late.latest_snapshot(run_id="a") is None
            await late.save_snapshot(snapshot("a", history(3)))
            assert [len(one.messages) for one in await late.list_snapshots(run_id="a")] == [7]


async def test_another_process_goes_on_with_a_run_that_the_keyframe_leaves_out(store_url: Url) -> None:
    """The journal was read from the keyframe, and is now read from its beginning."""
    with keyframes():
        async with holdfast.open_store(store_url) as store:
            steps = HoldfastStepStore(store)
            for run_id in ("a", "b"):
                await steps.register_run(run(run_id, conversation_id="c"))
            await steps.append_event(event("a", "run_completed"))
            await steps.save_snapshot(snapshot("b", history(1)))
            late = HoldfastStepStore(store)
            assert await late.latest_snapshot(run_id="b") is not None
            await steps.save_snapshot(snapshot("a", history(2)))
            await steps.save_snapshot(snapshot("b", history(2)))
            found = await late.latest_snapshot(run_id="b")
            assert found is not None
            assert len(found.messages) == 5
            assert [len(one.messages) for one in await late.list_snapshots(run_id="a")] == [5]


async def test_a_history_saved_after_an_erasure_rests_on_nothing_that_was_erased(store_url: Url) -> None:
    """The step store had the erased histories in memory, and has read on since."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("a", conversation_id="c"))
        await steps.save_snapshot(snapshot("a", history(2)))
        await store.clean("steps-c", checkpoints=False)
        assert await steps.latest_snapshot(run_id="a") is None
        await steps.save_snapshot(snapshot("a", history(3)))
        found = await HoldfastStepStore(store).latest_snapshot(run_id="a")
        assert found is not None
        assert found.messages == history(3)


async def test_a_history_that_was_read_while_another_process_erases_is_read_anew(store_url: Url) -> None:
    """What was said is erased after the entry that tells of it."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("a", conversation_id="c"))
        await steps.save_snapshot(snapshot("a", history(2)))
        async with store.session("steps-c") as session:
            late = HoldfastStepStore(store)
            writer_of(session).record(SessionErased(upto=session.state.seq))
            await session.flush()
            assert await late.latest_snapshot(run_id="a") is not None
            engine = engine_of(store)
            # The second part of `erase`, as this process may be killed or stopped after the first one.
            await engine.call(deletion._erase, engine, session)
        assert await late.latest_snapshot(run_id="a") is None


@pytest.mark.parametrize(
    "lengths", [(5, 5, 5), (5, 7, 3, 7), (3, 5, 5, 3)], ids=["repeated", "cut back", "both"]
)
async def test_a_keyframe_of_any_histories_can_be_gone_on_from(
    lengths: tuple[int, ...], store_url: Url
) -> None:
    """It has all that they are made of."""
    with keyframes():
        async with holdfast.open_store(store_url) as store:
            steps = HoldfastStepStore(store)
            await steps.register_run(run("a", conversation_id="c"))
            for length in lengths:
                await steps.save_snapshot(snapshot("a", history(3)[:length]))
            frame = read_keyframe(engine_of(store).driver.find_keyframe(_SESSION))
            assert frame is not None
            assert isinstance(frame.adapter, AdapterFold)
            restored = Steps("a keyframe")
            restored.restore(frame.adapter.data)
            latest = restored.runs["a"].find_latest(include_interrupted=True)
            assert latest is not None
            assert sum(count for _, count in latest.list_parts()) == lengths[-1]
            found = await HoldfastStepStore(store).latest_snapshot(run_id="a", include_interrupted=True)
            assert found is not None
            assert found.messages == history(3)[: lengths[-1]]


async def test_a_changed_message_before_the_keyframe_is_an_error(quick_path: Path) -> None:
    """Messages are read late, and compared with the digests in the journal then."""
    path = quick_path / "agents.db"
    with keyframes():
        async with holdfast.open_store(f"sqlite:{path}") as store:
            steps = HoldfastStepStore(store)
            await steps.register_run(run("a", conversation_id="c"))
            await steps.save_snapshot(snapshot("a", history(2)))
            await steps.append_event(event("a", "model_request_started"))
        database = apsw.Connection(str(path))
        database.execute("UPDATE chunks SET said = replace(said, 'result 1', 'result 7')")
        database.close()
        async with holdfast.open_store(f"sqlite:{path}") as store:
            steps = HoldfastStepStore(store)
            assert await steps.get_run(run_id="a") is not None
            with pytest.raises(Corrupt, match="what was said is not what"):
                await steps.latest_snapshot(run_id="a")

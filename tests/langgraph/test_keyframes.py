"""A saver that begins with a keyframe finds the same as one that folds the whole journal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.thread_ids import ThreadNamespace
from holdfast.core.codec import Page
from holdfast.drivers.contract import Driver
from holdfast.ids import SessionId
from tests.internals import engine_of

from .checkpoints_by_hand import checkpoint
from .conftest import on_every_store
from .graphs import thread

_LIMITS = "holdfast.adapters.leaseless_journal"
_SESSION = ThreadNamespace("t", "").session


@contextmanager
def keyframes(entries: int = 2, growth: float = 0.0) -> Iterator[None]:
    """Keyframes after as many entries."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"{_LIMITS}.ADAPTER_KEYFRAME_ENTRIES_MIN", entries)
        patched.setattr(f"{_LIMITS}.ADAPTER_KEYFRAME_GROWTH", growth)
        yield


@contextmanager
def keyframe_is(driver: Driver, data: bytes | None) -> Iterator[None]:
    """Every session has this keyframe, or none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "find_keyframe", lambda session: data)
        yield


async def look(saver: HoldfastSaver, *threads: str) -> list[Any]:
    """All that a saver has to say of threads."""
    found: list[Any] = []
    for id in threads:
        latest = await saver.aget_tuple(thread(id, checkpoint_ns=""))
        listed = [one async for one in saver.alist(thread(id, checkpoint_ns=""))]
        deltas = [
            await saver.aget_delta_channel_history(config=one.config, channels=["log", "messages"])
            for one in listed
        ]
        found.append((latest, listed, deltas))
    return found


class Work:
    """Does at random what can be done with threads, by two savers."""

    def __init__(self, store: holdfast.Store, chance: random.Random) -> None:
        self.store, self._chance = store, chance
        self.savers = [HoldfastSaver(store), HoldfastSaver(store)]
        self._messages: list[Any] = []
        self._step = 0
        self._ahead: list[Any] = []

    async def step(self) -> None:
        """One operation."""
        saver = self._chance.choice(self.savers)
        listed = [one async for one in saver.alist(thread(checkpoint_ns=""))]
        operations: list[Callable[..., Any]] = [self._put, self._put, self._put, self._write, self._write]
        operations += [self._write_ahead, self._put_ahead, self._prune, self._remove_runs, self._restart]
        operations += [self._copy]
        await self._chance.choice(operations)(saver, listed)

    async def _put(self, saver: HoldfastSaver, listed: list[Any], made: Any = None) -> None:
        self._step += 1
        parent = self._chance.choice([*listed[:3], *listed[:1] * 3]) if listed else None
        values = dict(parent.checkpoint["channel_values"]) if parent is not None else {}
        versions = dict(parent.checkpoint["channel_versions"]) if parent is not None else {}
        changed = self._chance.sample(["messages", "note", "log"], self._chance.randint(0, 3))
        for channel in changed:
            versions[channel] = saver.get_next_version(versions.get(channel), None)
        if "messages" in changed:
            said = [
                HumanMessage("h" * 120, id=f"h{self._step}"),
                AIMessage(f"a{self._step}", id=f"a{self._step}"),
            ]
            values["messages"] = [*values.get("messages", []), *said]
        if "note" in changed:
            values["note"] = {"text": self._chance.choice(["x", "y"]) * 150, "step": [self._step]}
        values.pop("log", None)
        if "log" in changed and self._chance.random() < 0.3:
            values["log"] = _DeltaSnapshot([f"snapshot {self._step}" * 9])
        one = made or checkpoint(values, versions)
        one["channel_values"], one["channel_versions"] = values, versions
        config = parent.config if parent is not None else thread(checkpoint_ns="")
        meta: Any = {"source": "loop", "step": self._step, "run_id": f"run {self._step % 3}"}
        await saver.aput(config, one, meta, {channel: versions[channel] for channel in changed})

    async def _write(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        if listed:
            config = self._chance.choice([*listed, *listed[:1] * 3]).config
            task = self._chance.choice(["a", "b", "c"])
            writes: list[tuple[str, Any]] = [("log", f"{task} {self._step}" * 30), ("note", self._step)]
            await saver.aput_writes(config, self._chance.choice([writes, [(ERROR, "it failed")]]), task, task)

    async def _write_ahead(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        self._ahead.append(checkpoint({}, {}))
        config = thread(checkpoint_ns="", checkpoint_id=self._ahead[-1]["id"])
        await saver.aput_writes(config, [("log", "ahead" * 40)], "ahead")

    async def _put_ahead(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        if self._ahead:
            await self._put(saver, listed, self._ahead.pop())

    async def _prune(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        if self._chance.random() < 0.3:
            await saver.aprune(["t"])

    async def _remove_runs(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        if self._chance.random() < 0.3:
            await saver.adelete_for_runs([f"run {self._chance.randint(0, 2)}"])

    async def _copy(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        if self._chance.random() < 0.3:
            await saver.acopy_thread("t", self._chance.choice(["copy", "another"]))

    async def _restart(self, saver: HoldfastSaver, listed: list[Any]) -> None:
        self.savers[self.savers.index(saver)] = HoldfastSaver(self.store)


@settings(max_examples=8)
@given(chance=st.randoms(use_true_random=False), entries=st.integers(1, 9))
async def test_whatever_happened_a_keyframe_tells_the_same(chance: random.Random, entries: int) -> None:
    """The savers that wrote, one that begins with a keyframe, and one that folds all, agree."""
    names = ("t", "copy", "another")
    with keyframes(entries):
        async with holdfast.open_store("memory:") as store:
            driver = engine_of(store).driver
            work = Work(store, chance)
            for _ in range(20):
                await work.step()
                expected = await look(HoldfastSaver(store), *names)
                assert await look(chance.choice(work.savers), *names) == expected
            with keyframe_is(driver, None):
                assert await look(HoldfastSaver(store), *names) == expected


async def fill(store: holdfast.Store, steps: int, id: str = "t") -> list[Any]:
    """A thread whose messages grow; where each step is."""
    saver = HoldfastSaver(store)
    config: Any = thread(id, checkpoint_ns="")
    messages: list[Any] = []
    versions: dict[str, Any] = {}
    found: list[Any] = []
    for step in range(steps):
        versions = {"messages": saver.get_next_version(versions.get("messages"), None)}
        messages = [*messages, HumanMessage(f"{step}" * 200, id=f"h{step}")]
        config = await saver.aput(config, checkpoint({"messages": messages}, versions), {}, versions)
        await saver.aput_writes(config, [("messages", f"{step}")], "task")
        found.append(config)
    return found


@on_every_store
async def test_a_fresh_saver_reads_what_is_alive(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an old checkpoint only if it is asked for."""
    with keyframes(64, 0.25):
        async with holdfast.open_store(url) as store:
            configs = await fill(store, 300)
            driver = engine_of(store).driver
            read, counted = driver.read, [0, 0]

            def count(session: SessionId, after: int, limit: int, *, said: bool) -> Page:
                page = read(session, after, limit, said=said)
                counted[said] += page.count
                return page

            monkeypatch.setattr(driver, "read", count)
            saver = HoldfastSaver(store)
            found = await saver.aget_tuple(thread())
            assert found is not None
            assert len(found.checkpoint["channel_values"]["messages"]) == 300
            assert found.pending_writes == [("task", "messages", "299")]
            assert counted[False] < 250
            assert counted[True] < 250
            old = await saver.aget_tuple(configs[20])
            assert old is not None
            assert len(old.checkpoint["channel_values"]["messages"]) == 21
            assert old.pending_writes == [("task", "messages", "20")]
            assert len([one async for one in saver.alist(thread())]) == 300


@on_every_store
async def test_keyframes_cost_a_constant(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that were written together are a few times as long as the journal, also of a large state."""
    written = [0, 0]
    with keyframes(16, 0.25):
        async with holdfast.open_store(url) as store:
            driver = engine_of(store).driver
            commit = driver.commit

            def count(batch: Any, **options: Any) -> Any:
                for item in batch:
                    written[0] += sum(chunk.size for chunk in item.chunks)
                    written[1] += len(item.keyframe or b"")
                return commit(batch, **options)

            monkeypatch.setattr(driver, "commit", count)
            await fill(store, 300)
            assert 0 < written[1] < 6 * written[0]
            written[:] = [0, 0]
            saver = HoldfastSaver(store)
            config: Any = thread("large", checkpoint_ns="")
            versions: dict[str, Any] = {"document": 1}
            document = "".join(chr(0x4E00 + number % 20_000) for number in range(200_000))
            for step in range(200):
                made = checkpoint({"document": document, "step": step}, {**versions, "step": step})
                config = await saver.aput(config, made, {}, {"step": step, **(versions if not step else {})})
            assert written[1] < 6 * written[0]


async def test_a_keyframe_that_does_not_fit_is_ignored(tmp_path: Any) -> None:
    """One that is damaged, of another version, of another session, or of an earlier one of the same id."""
    with keyframes(4):
        async with holdfast.open_store(f"sqlite:{tmp_path}/store.db") as store:
            driver = engine_of(store).driver
            await fill(store, 5)
            former = driver.find_keyframe(_SESSION)
            await HoldfastSaver(store).adelete_thread("t")
            await fill(store, 7, "other")
            other = driver.find_keyframe(ThreadNamespace("other", "").session)
            await fill(store, 10)
            earlier = driver.find_keyframe(_SESSION)
            await fill(store, 12)
            own = driver.find_keyframe(_SESSION)
            assert former
            assert other
            assert own
            assert earlier
            with keyframe_is(driver, None):
                expected = await look(HoldfastSaver(store), "t")
            wrong = [
                former,
                other,
                earlier,
                own[:-1],
                own[: len(own) // 2],
                own.replace(b'"h3"', b'"h4"'),
                own.replace(b'"version":1', b'"version":2'),
                own.replace(b'"name":"langgraph"', b'"name":"steps"'),
                b"",
                b"{}",
            ]
            for data in [own, *wrong]:
                with keyframe_is(driver, data):
                    saver = HoldfastSaver(store)
                    assert await look(saver, "t") == expected


async def test_what_was_erased_meanwhile_is_not_asked_for(store: holdfast.Store) -> None:
    """A saver that knows where an old checkpoint was finds that it was removed by another one."""
    with keyframes(4):
        configs = await fill(store, 40)
        reader, other = HoldfastSaver(store), HoldfastSaver(store)
        assert await reader.aget_tuple(thread()) is not None
        listed = reader.alist(thread(checkpoint_ns=""))
        first = await anext(listed)
        assert first.config == configs[-1]
        await other.aprune(["t"])
        assert [one async for one in listed] == []
        assert await reader.aget_tuple(configs[3]) is None
        found = await reader.aget_tuple(thread())
        assert found is not None
        assert found.config == configs[-1]


async def test_a_saver_that_only_writes_writes_only_what_is_new(store: holdfast.Store) -> None:
    """It has not read the thread, and finds out what is there."""
    with keyframes(4):
        configs = await fill(store, 30)
        saver = HoldfastSaver(store)
        before = await HoldfastSaver(store).aget_tuple(configs[-1])
        assert before is not None
        messages = [*before.checkpoint["channel_values"]["messages"], HumanMessage("new", id="new")]
        versions: Any = {"messages": "99"}
        await saver.aput(configs[-1], checkpoint({"messages": messages}, versions), {}, versions)
        entries = [entry async for entry in store.tail(_SESSION, follow=False)]
        puts = [entry for entry in entries if entry.kind.endswith(".put")]
        assert len(bytes(puts[-1].content or b"")) < 1000
        found = await HoldfastSaver(store).aget_tuple(thread())
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == messages

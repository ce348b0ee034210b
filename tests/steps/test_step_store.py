"""What the protocol of step stores asks for, on every store of ours, and what ours promises beyond it."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import anyio
import anyio.lowlevel
import apsw
import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.step_persistence import StepStore

import holdfast
from holdfast import LeaseHeld
from holdfast.adapters.pydantic_ai.step_history import dump
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.drivers.contract import Append, Outcome
from holdfast.errors import BadInput, Corrupt, MissingExtra, RunExists
from holdfast.limits import LINGER_S, STEP_JOURNALS_MAX
from tests.steps.example_histories import Url, at, effect, event, history, opened, run, snapshot


async def test_it_is_a_step_store(store_url: Url) -> None:
    """By their own check."""
    async with opened(store_url) as steps:
        assert isinstance(steps, StepStore)


# -- runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("long", ["c" * 300, "c\n" * 150])
async def test_a_long_conversation_keeps_its_original_as_a_label(long: str) -> None:
    """And so does a run without a conversation."""
    async with holdfast.open_store("memory:") as store:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("r1", conversation_id=long))
        await steps.register_run(run("r2", conversation_id="plain"))
        await steps.register_run(run(f"r{long}", conversation_id=None))
        found = {head.session[:5]: head.labels async for head in store.sessions()}
        labels = [head.labels async for head in store.sessions()]
        shown = long.replace("\n", "\\n")
        assert {"adapter": "pydantic-ai", "conversation": shown} in labels
        assert {"adapter": "pydantic-ai", "run": f"r{shown}"} in labels
        assert found["steps"] == {"adapter": "pydantic-ai"}
        assert {one.run_id for one in await steps.list_runs()} == {"r1", "r2", f"r{long}"}


async def test_runs_of_others_in_the_same_store_are_not_listed() -> None:
    """`Durable` keeps its own facts of a run in the same place."""
    async with holdfast.open_store("memory:") as store:
        async with store.session("s") as session:
            for config in ({"pydantic_ai": {"since": 2, "opening": "x", "drive": None}}, {"other": 1}, None):
                async with session.run(config=config):
                    pass
        steps = HoldfastStepStore(store)
        await steps.register_run(run("r1"))
        assert [one.run_id for one in await steps.list_runs()] == ["r1"]


async def test_a_run_is_given_back_as_it_was_registered(store_url: Url) -> None:
    """Every field, in this process and in the next."""
    record = run(
        "r1",
        conversation_id="c:1/ü",
        parent_run_id="r0",
        agent_name="clerk",
        metadata={"tenant": "a"},
        registration_id="x",
    )
    async with opened(store_url) as steps:
        assert await steps.get_run(run_id="r1") is None
        await steps.register_run(record)
        assert await steps.get_run(run_id="r1") == record
    async with opened(store_url) as steps:
        assert await steps.get_run(run_id="r1") == record


@pytest.mark.parametrize("conversation", ["c1", "c2", None])
async def test_a_run_id_is_used_once(conversation: str | None, store_url: Url) -> None:
    """Also in another conversation; the first run's records stay as they are."""
    first = run("r1", conversation_id="c1", agent_name="first", registration_id="a")
    async with opened(store_url) as steps:
        await steps.register_run(first)
        await steps.append_event(event("r1"))
    async with opened(store_url) as steps:
        with pytest.raises(RunExists, match="run id 'r1' exists already") as raised:
            await steps.register_run(run("r1", conversation_id=conversation, registration_id="b"))
        assert isinstance(raised.value, ValueError)
        assert await steps.get_run(run_id="r1") == first
        assert await steps.list_events(run_id="r1") == [event("r1")]
        assert await steps.list_runs() == [first]


async def test_the_same_registration_again_is_no_error(store_url: Url) -> None:
    """A durable operation may be tried twice."""
    async with opened(store_url) as steps:
        await steps.register_run(run("r1", registration_id="a"))
        await steps.register_run(run("r1", registration_id="a"))
        assert len(await steps.list_runs()) == 1


async def test_of_many_registrations_at_once_one_wins(store_url: Url) -> None:
    """From several stores on the same data."""
    won: list[str] = []

    async def register(steps: HoldfastStepStore, number: int) -> None:
        try:
            await steps.register_run(run("r1", conversation_id=f"c{number % 2}", agent_name=str(number)))
            won.append(str(number))
        except RunExists:
            pass

    async with opened(store_url) as one, opened(store_url) as two, anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(register, one if number % 3 else two, number)
    async with opened(store_url) as steps:
        (record,) = await steps.list_runs()
        assert [record.agent_name] == won


async def test_runs_are_listed_oldest_first_and_filters_combine(store_url: Url) -> None:
    """By when they began, not by when they were registered."""
    async with opened(store_url) as steps:
        await steps.register_run(run("late", conversation_id="c1", started_at=at(9)))
        await steps.register_run(run("early", conversation_id="c2", parent_run_id="late", started_at=at(1)))
        await steps.register_run(run("middle", conversation_id="c1", parent_run_id="late", started_at=at(5)))

        async def ids(**filters: Any) -> list[str]:
            return [one.run_id for one in await steps.list_runs(**filters)]

        assert await ids() == ["early", "middle", "late"]
        assert await ids(parent_run_id="late") == ["early", "middle"]
        assert await ids(conversation_id="c1") == ["middle", "late"]
        assert await ids(conversation_id="c1", parent_run_id="late") == ["middle"]
        assert await ids(conversation_id="nobody") == []


async def test_runs_arrive_in_our_own_words(store_url: Url) -> None:
    """So they are listed beside all others, with their parents and ends."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("boss", conversation_id="c1", agent_name="boss"))
        await steps.register_run(run("help", conversation_id="c2", parent_run_id="boss"))
        await steps.append_event(event("help", "run_failed", error="ouch"))
        await steps.append_event(event("boss", "run_completed"))
        runs = {one.run: one async for one in store.runs()}
        assert (runs["boss"].status, runs["boss"].agent) == ("completed", "pydantic-ai/boss")
        assert (runs["help"].status, runs["help"].session) == ("failed", "steps-c2")
        assert [one.run async for one in store.runs(parent="boss")] == ["help"]


# -- events ----------------------------------------------------------------------------------------------


async def test_events_are_kept_in_order_with_every_field(store_url: Url) -> None:
    """Whatever the run is called, and whether or not it was registered."""
    given = [
        event("a/b:1", "run_started", conversation_id="c", parent_run_id="p", agent_name="n"),
        event("a/b:1", "tool_call_failed", tool_call_id="t", tool_name="look", error="boom"),
        event("a/b:1", "run_failed", metadata={"k": "v"}, idempotency_key="7:x"),
    ]
    async with opened(store_url) as steps:
        for one in given:
            await steps.append_event(one)
        assert await steps.list_events(run_id="a/b:1") == given
        assert await steps.list_events(run_id="other") == []
    async with opened(store_url) as steps:
        assert await steps.list_events(run_id="a/b:1") == given


async def test_an_event_with_a_known_key_is_a_repetition(store_url: Url) -> None:
    """Of its run: another one may use the same keys."""
    async with opened(store_url) as steps:
        await steps.append_event(event("r1", idempotency_key="0:a"))
    async with opened(store_url) as steps:
        await steps.append_event(event("r1", "run_failed", idempotency_key="0:a"))
        await steps.append_event(event("r2", idempotency_key="0:a"))
        assert [one.kind for one in await steps.list_events(run_id="r1")] == ["run_started"]
        assert len(await steps.list_events(run_id="r2")) == 1


async def test_an_event_that_nobody_waits_for_leaves_by_itself(store_url: Url) -> None:
    """So who follows a run from another process sees it, also while a tool takes its time."""
    async with opened(store_url) as one, opened(store_url) as two:
        await one.append_event(event("r1", "tool_call_started"))
        assert await one.list_events(run_id="r1") == [event("r1", "tool_call_started")]
        with anyio.fail_after(60):
            while not await two.list_events(run_id="r1"):  # noqa: ASYNC110
                await anyio.sleep(0.01)


@pytest.mark.parametrize("left_alone", [False, True], ids=["at once", "after a while"])
async def test_an_event_is_not_lost_when_somebody_else_is_quicker(left_alone: bool, store_url: Url) -> None:
    """No call waits for it, so no call would fail."""
    async with opened(store_url) as one, opened(store_url) as two:
        for steps, name in ((one, "r1"), (two, "r2")):
            await steps.register_run(run(name, conversation_id="c1"))
        await one.append_event(event("r1", "run_started"))
        await two.append_event(event("r2", "run_started"))
        await one.append_event(event("r1", "model_request_started"))
        await two.save_snapshot(snapshot("r2", history(1)))
        if left_alone:
            await anyio.sleep(4 * LINGER_S)
        await one.append_event(event("r1", "model_request_completed"))
    async with opened(store_url) as steps:
        kinds = [one.kind for one in await steps.list_events(run_id="r1")]
        assert kinds == ["run_started", "model_request_started", "model_request_completed"]


async def test_a_store_that_closes_while_an_event_leaves_does_not_lose_it(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is refused, for another store was quicker: sending it and closing do not race."""
    async with opened(store_url) as two, opened(store_url) as one:
        await one.register_run(run("r1", conversation_id="c1"))
        await two.register_run(run("r2", conversation_id="c1"))
        await one.append_event(event("r1", "model_request_started"))
        # Sent at this moment; by itself it is sent at some moment after the event.
        assert one._opened is not None
        driver = one._opened.engine.driver
        commit = driver.commit

        def commit_slowly(batch: Sequence[Append]) -> Sequence[Outcome]:
            time.sleep(0.1)
            return commit(batch)

        monkeypatch.setattr(driver, "commit", commit_slowly)
        one._opened._send()  # At the moment when the store closes.
        await anyio.lowlevel.checkpoint()
    async with opened(store_url) as steps:
        assert [one.kind for one in await steps.list_events(run_id="r1")] == ["model_request_started"]


@pytest.mark.parametrize("first", [True, False], ids=["the first event", "a later one"])
async def test_what_is_refused_takes_no_event_along(first: bool, store_url: Url) -> None:
    """Neither those that wait for a line, nor what the next ones are compared with."""
    given = [
        event("r1", "model_request_started", step_index=0, idempotency_key="0:0:model_request_started:"),
        event("r1", "tool_call_started", step_index=3, idempotency_key="1:3:tool_call_started:"),
        event("r1", "tool_call_completed", step_index=3, idempotency_key="2:3:tool_call_completed:"),
    ][first:]
    async with opened(store_url) as steps:
        if not first:
            await steps.append_event(given[0])
            await steps.save_snapshot(snapshot("r1", history(1)))
        await steps.append_event(given[-2])
        with pytest.raises(BadInput, match="cannot be written"):
            await steps.record_tool_effect(effect("r1", effect_summary="half \ud83d"))
        with pytest.raises(BadInput, match="cannot be written"):
            await steps.append_event(event("r1", "run_failed", error="half \ud83d"))
        await steps.append_event(given[-1])
    async with opened(store_url) as steps:
        assert await steps.list_events(run_id="r1") == given


async def test_a_run_may_be_registered_after_its_first_event(store_url: Url) -> None:
    """Nothing that was noted before is lost."""
    async with opened(store_url) as steps:
        await steps.append_event(event("r1"))
        await steps.register_run(run("r1", conversation_id="c1"))
        await steps.append_event(event("r1", "run_completed"))
        kinds = [one.kind for one in await steps.list_events(run_id="r1")]
        assert kinds == ["run_started", "run_completed"]


# -- histories -------------------------------------------------------------------------------------------


async def test_a_history_comes_back_as_it_was(store_url: Url) -> None:
    """Every message with every field, however many there were before."""
    async with opened(store_url) as steps:
        for count in (0, 1, 5):
            await steps.save_snapshot(snapshot("r1", history(count), conversation_id="c", agent_name="n"))
        found = await steps.latest_snapshot(run_id="r1")
        assert found == snapshot("r1", history(5), conversation_id="c", agent_name="n")
        assert await steps.latest_snapshot(run_id="r2") is None
    async with opened(store_url) as steps:
        assert [len(one.messages) for one in await steps.list_snapshots(run_id="r1")] == [1, 3, 11]
        assert (await steps.list_snapshots(run_id="r1"))[1].messages == history(1)


async def test_an_interrupted_history_is_only_given_to_who_asks_for_it(store_url: Url) -> None:
    """The newest of all, or the newest whose calls were settled."""
    async with opened(store_url) as steps:
        await steps.save_snapshot(snapshot("r1", history(1)))
        await steps.save_snapshot(snapshot("r1", history(2)[:-1], state="interrupted"))
        settled = await steps.latest_snapshot(run_id="r1")
        newest = await steps.latest_snapshot(run_id="r1", include_interrupted=True)
        assert settled is not None
        assert newest is not None
        assert (settled.state, newest.state) == ("complete", "interrupted")
        assert len(await steps.list_snapshots(run_id="r1")) == 1
        assert len(await steps.list_snapshots(run_id="r1", include_interrupted=True)) == 2


async def test_a_save_with_a_known_or_an_older_key_is_a_repetition(store_url: Url) -> None:
    """In this process and in the next."""
    async with opened(store_url) as steps:
        await steps.save_snapshot(snapshot("r1", history(2), idempotency_key="4:2:complete"))
        await steps.save_snapshot(snapshot("r1", history(3), idempotency_key="4:2:complete"))
    async with opened(store_url) as steps:
        await steps.save_snapshot(snapshot("r1", history(1), idempotency_key="3:1:complete"))
        await steps.save_snapshot(snapshot("r1", history(4), idempotency_key="5:4:complete"))
        assert [len(one.messages) for one in await steps.list_snapshots(run_id="r1")] == [5, 9]


def _changed(messages: list[ModelMessage]) -> None:
    said = messages[1].parts[0]
    assert isinstance(said, TextPart)
    said.content = "said something else"


def _changed_inside(messages: list[ModelMessage]) -> None:
    call = messages[1].parts[1]
    assert isinstance(call, ToolCallPart)
    cast("dict[str, Any]", call.args)["n"] = 7


@pytest.mark.parametrize("change", [_changed, _changed_inside])
@pytest.mark.parametrize("by", ["in place", "in a copy", "by another process"])
async def test_a_history_that_was_rewritten_is_kept_as_it_is_now(
    by: str, change: Callable[[list[ModelMessage]], None], store_url: Url
) -> None:
    """Compaction and processors change what was said; earlier histories keep theirs."""
    messages = history(4)
    async with opened(store_url) as steps:
        await steps.save_snapshot(snapshot("r1", messages))
        if by != "in place":
            messages = deepcopy(messages)
        change(messages)
        if by != "by another process":
            await steps.save_snapshot(snapshot("r1", messages))
    async with opened(store_url) as steps:
        if by == "by another process":
            await steps.save_snapshot(snapshot("r1", messages))
        await steps.save_snapshot(snapshot("r1", messages[:2]))
        before, after, shorter = await steps.list_snapshots(run_id="r1")
        assert (before.messages, after.messages) == (history(4), messages)
        assert shorter.messages == messages[:2]


async def test_a_usage_that_changes_in_place_is_noticed(store_url: Url) -> None:
    """Also after it was found unchanged before."""
    reply = ModelResponse(parts=[TextPart(content="hello")], usage=RequestUsage(input_tokens=1))
    async with opened(store_url) as steps:
        for tokens in (1, 1, 99):
            reply.usage.input_tokens = tokens
            await steps.save_snapshot(snapshot("r1", [reply]))
        found = [one.messages[0] for one in await steps.list_snapshots(run_id="r1")]
    assert [one.usage.input_tokens for one in found if isinstance(one, ModelResponse)] == [1, 1, 99]


@dataclass(slots=True)
class _Slotted:
    left: int


@dataclass
class _Mixed(_Slotted):
    """Has fields in slots, and others not."""

    right: int


# Theirs may look like this one day.
_Mixed.__module__ = "pydantic_ai.messages"


@pytest.mark.parametrize("content", [_Mixed(1, 2), {"a": [_Slotted(1)]}, Decimal("1.5")])
async def test_a_tool_may_return_what_it_likes(content: Any, store_url: Url) -> None:
    """Copies of it are made to be compared with."""
    returned = ToolReturnPart(tool_name="look", content=content, tool_call_id="call_0")
    messages: list[ModelMessage] = [ModelRequest(parts=[returned])]
    async with opened(store_url) as steps:
        for _ in range(2):
            await steps.save_snapshot(snapshot("r1", messages))
        assert [len(one.messages) for one in await steps.list_snapshots(run_id="r1")] == [1, 1]


async def test_fields_that_equality_leaves_out_are_kept_too(store_url: Url) -> None:
    """Two files may be equal in their eyes, and have different names."""

    def told(name: str) -> list[ModelMessage]:
        image = BinaryContent(data=b"x", media_type="image/png", identifier=name)
        return [ModelRequest(parts=[UserPromptPart(content=["Look", image], timestamp=at(0))])]

    assert told("one") == told("two")
    async with opened(store_url) as steps:
        for name in ("one", "two"):
            await steps.save_snapshot(snapshot("r1", told(name)))
        found = await steps.list_snapshots(run_id="r1")
        names = [dump(one.messages[0]).partition(b'"identifier":"')[2][:3].decode() for one in found]
        assert names == ["one", "two"]


@pytest.mark.parametrize(
    "usage",
    [
        RequestUsage(),
        RequestUsage(input_tokens=7, details={}),
        RequestUsage(output_tokens=3, details={"nothing": 0, "something": 1}),
        RequestUsage(input_tokens=0, cost=Decimal(0)),
    ],
    ids=["empty", "some", "details", "zero cost"],
)
async def test_a_usage_comes_back_whole(usage: RequestUsage, store_url: Url) -> None:
    """A dozen counters stand in every reply, and those that have counted nothing are not stored."""
    reply = ModelResponse(parts=[TextPart(content="Yes")], usage=usage, timestamp=at(0))
    assert b"audio" not in dump(reply)
    async with opened(store_url) as steps:
        await steps.save_snapshot(snapshot("r1", [reply]))
    async with opened(store_url) as steps:
        found = await steps.latest_snapshot(run_id="r1")
        assert found is not None
        assert found.messages == [reply]
        as_given = ModelMessagesTypeAdapter.dump_json([reply])
        assert ModelMessagesTypeAdapter.dump_json(found.messages) == as_given


async def _count_bytes(store: holdfast.Store) -> int:
    total = 0
    async for head in store.sessions():
        async for entry in store.tail(head.session, follow=False):
            total += len(bytes(entry.content)) if entry.content is not None else 0
    return total


@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "a process for every step"])
async def test_what_is_stored_grows_with_what_is_new(fresh: bool, store_url: Url) -> None:
    """A message is written once, in whatever process and in however many runs of the conversation."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        for name in ("r1", "r2"):
            await steps.register_run(run(name, conversation_id="c1"))
        for count in range(30):
            name = "r1" if count < 15 else "r2"
            await steps.save_snapshot(snapshot(name, deepcopy(history(count))))
            if fresh:
                steps = HoldfastStepStore(store)
        whole = len(ModelMessagesTypeAdapter.dump_json(history(29)))
        assert await _count_bytes(store) < 1.1 * whole
        found = await steps.latest_snapshot(run_id="r2")
        assert found is not None
        assert found.messages == history(29)


# -- tool effects ----------------------------------------------------------------------------------------


async def test_the_last_word_about_a_tool_call_counts(store_url: Url) -> None:
    """Calls that were started and have no end are unresolved."""
    async with opened(store_url) as steps:
        assert await steps.get_tool_effect(run_id="r1", tool_call_id="call_0") is None
        await steps.record_tool_effect(effect("r1", "call_0"))
        await steps.record_tool_effect(effect("r1", "call_1", idempotency_key="k", effect_summary="s"))
        done = effect("r1", "call_0", "completed", ended_at=at(4))
        await steps.record_tool_effect(done)
        assert await steps.get_tool_effect(run_id="r1", tool_call_id="call_0") == done
    async with opened(store_url) as steps:
        (left,) = await steps.list_unresolved_tool_effects(run_id="r1")
        assert left == effect("r1", "call_1", idempotency_key="k", effect_summary="s")
        assert await steps.list_unresolved_tool_effects(run_id="r2") == []


# -- several at once, and damage -------------------------------------------------------------------------


async def test_two_stores_write_to_one_conversation(store_url: Url) -> None:
    """A writer that was refused reads again; nothing is lost and nothing is there twice."""
    async with opened(store_url) as two, opened(store_url) as one:
        await one.register_run(run("r1", conversation_id="c1"))
        await two.register_run(run("r2", conversation_id="c1"))

        async def work(steps: HoldfastStepStore, name: str) -> None:
            for number in range(10):
                kind = ("run_started", "tool_call_started")[number % 2]
                await steps.append_event(event(name, kind, step_index=number, idempotency_key=f"{number}:"))
                await steps.save_snapshot(snapshot(name, history(number)))

        async with anyio.create_task_group() as tasks:
            for steps, name in ((one, "r1"), (two, "r2"), (one, "r2"), (two, "r1")):
                tasks.start_soon(work, steps, name)
        for name in ("r1", "r2"):
            events = await one.list_events(run_id=name)
            assert sorted(item.step_index for item in events) == list(range(10))
            found = await two.list_snapshots(run_id=name)
            assert len(found) == 20
            assert all(item.messages == history(item.step_index // 2) for item in found)


async def test_more_conversations_than_are_kept_in_memory(store_url: Url) -> None:
    """The others are read again."""
    async with opened(store_url) as steps:
        for _ in range(2):
            for number in range(STEP_JOURNALS_MAX + 5):
                await steps.append_event(event(f"r{number}"))
        assert len(await steps.list_events(run_id="r0")) == 2


async def test_a_session_that_somebody_holds_is_left_alone(store_url: Url) -> None:
    """Its holder writes alone."""
    async with holdfast.open_store(store_url) as store, holdfast.open_store(store_url) as other:
        await HoldfastStepStore(store).register_run(run("r1", conversation_id="c1"))
        async with other.session("steps-c1"):
            with pytest.raises(LeaseHeld):
                await HoldfastStepStore(store).append_event(event("r1"))
        await HoldfastStepStore(store).append_event(event("r1"))


async def test_a_conversation_that_was_deleted_can_begin_anew(store_url: Url) -> None:
    """Also for a store that knew the old one."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("r1", conversation_id="c1"))
        await steps.save_snapshot(snapshot("r1", history(2)))
        await store.delete("steps-c1")
        assert await steps.get_run(run_id="r1") is None
        await steps.register_run(run("r1", conversation_id="c1", agent_name="again"))
        await steps.save_snapshot(snapshot("r1", history(1)))
        (found,) = await steps.list_snapshots(run_id="r1")
        assert found.messages == history(1)


async def test_what_was_erased_is_not_offered(store_url: Url) -> None:
    """Nothing can go on from it; what is said afterwards is kept whole."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("r1", conversation_id="c1"))
        await steps.save_snapshot(snapshot("r1", history(2)))
        await store.clean("steps-c1", transcript=True, checkpoints=False)
        steps = HoldfastStepStore(store)
        assert await steps.latest_snapshot(run_id="r1") is None
        await steps.save_snapshot(snapshot("r1", history(3)))
        found = await steps.latest_snapshot(run_id="r1")
        assert found is not None
        assert found.messages == history(3)


async def test_bytes_that_were_altered_are_found(tmp_path: Any) -> None:
    """A store of theirs would give back another history than was stored."""
    async with opened(f"sqlite:{tmp_path}/store.db") as steps:
        await steps.register_run(run("r1", conversation_id="c1"))
        await steps.save_snapshot(snapshot("r1", history(2)))
    db = apsw.Connection(f"{tmp_path}/store.db")
    db.execute("UPDATE chunks SET said = replace(said, 'result 1', 'result 7')")
    db.close()
    async with opened(f"sqlite:{tmp_path}/store.db") as steps:
        with pytest.raises(Corrupt):
            await steps.latest_snapshot(run_id="r1")


def test_without_the_harness_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And which version it is for."""
    name = "holdfast.adapters.pydantic_ai.step_store"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai_harness.step_persistence", None)
    with pytest.raises(MissingExtra, match=r"pydantic-ai-harness 0\.62.*holdfast\[pydantic-ai-harness\]"):
        importlib.import_module(name)

"""A session in its store: growth, blobs, versions, copies, compaction, other processes and closing."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, Runner, SQLiteSession
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel, assistant_message

import holdfast
from holdfast import blocking
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.core.entries import MessageAdded, SessionRewound
from holdfast.ids import SessionId
from holdfast.limits import ITEMS_PER_VERSION, KEYFRAME_ENTRIES_MIN

from ..internals import engine_of
from .items_by_hand import assistant, call, output, user


async def read_anew(url: str, session_id: str = "ann") -> list[Any]:
    """What a process finds that has read nothing yet."""
    session = HoldfastSession(session_id, url)
    found: list[Any] = list(await session.get_items())
    await session.aclose()
    return found


async def test_what_is_added_costs_what_is_new(tmp_path: Path) -> None:
    """Bytes in the journal for an item do not grow with the number of items before it."""
    async with holdfast.open_store(f"sqlite:{tmp_path}/store") as store:
        session = HoldfastSession("ann", store)
        for number in range(300):
            await session.get_items()
            await session.add_items([user(f"{number:04} " + "x" * 100)])
        sizes = [
            len(bytes(entry.content or b""))
            async for entry in store.tail("ann", follow=False)
            if isinstance(entry.body, MessageAdded)
        ]
    assert len(sizes) == 300
    assert max(sizes) == min(sizes)


async def test_media_and_long_outputs_are_blobs(store: holdfast.Store) -> None:
    """Stored once for equal bytes, not in the journal, and given back byte for byte."""
    image = base64.b64encode(os.urandom(100_000)).decode()
    long = "A line of a log.\n" * 20_000
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{image}"}]},
        call("c1"),
        output("c1", long),
        call("c2"),
        output("c2", [{"type": "input_image", "image_url": f"data:image/png;base64,{image}"}]),
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": image},
    ]
    session = HoldfastSession("ann", store)
    await session.add_items(items)
    assert await session.get_items() == items
    assert await HoldfastSession("ann", store).get_items() == items
    blobs = [blob async for blob in store.blobs()]
    assert sorted(blob.size for blob in blobs) == [100_000, len(long)]
    journal = [entry async for entry in store.tail("ann", follow=False)]
    assert sum(len(bytes(entry.content or b"")) for entry in journal) < 5_000
    for item in reversed(items):
        assert await session.pop_item() == item


async def test_a_text_that_looks_like_a_reference_is_a_text(store: holdfast.Store) -> None:
    """What a user says is never read as a blob."""
    text = f"media+sha256://{'0' * 64}"
    session = HoldfastSession("ann", store)
    await session.add_items([user(text), call("c1"), output("c1", text)])
    assert await session.get_items() == [user(text), call("c1"), output("c1", text)]


async def test_a_long_session_is_read_from_its_keyframe(tmp_path: Path) -> None:
    """In whole, in another process, and on from there by several writers."""
    url = f"sqlite:{tmp_path}/store"
    items = [user(str(number)) for number in range(KEYFRAME_ENTRIES_MIN)]
    session = HoldfastSession("ann", url)
    for at in range(0, len(items), 2):
        await session.add_items(items[at : at + 2])
    store = await session.get_store()
    assert engine_of(store).driver.find_keyframe(SessionId("ann")) is not None
    assert await read_anew(url) == items
    other = HoldfastSession("ann", url)
    await other.add_items([user("of another")])
    assert await session.get_items() == [*items, user("of another")]
    assert await other.pop_item() == user("of another")
    assert await other.pop_item() == items[-1]
    assert await session.get_items(3) == items[-4:-1]
    await session.add_items([user("last")])
    assert await other.get_items(2) == [items[-2], user("last")]
    await other.aclose()
    assert await read_anew(url) == [*items[:-1], user("last")]
    await session.aclose()


async def test_taking_away_writes_no_more_than_a_few_items_again(store: holdfast.Store) -> None:
    """Also from a list that was added in one call."""
    session = HoldfastSession("ann", store)
    items = [user(str(number)) for number in range(10 * ITEMS_PER_VERSION)]
    await session.add_items(items)
    before = (await store.head("ann")).seq
    for left in range(len(items) - 1, len(items) - 4, -1):
        assert await session.pop_item() == items[left]
    assert await session.get_items() == items[:-3]
    after = (await store.head("ann")).seq
    assert after - before < 3 * (ITEMS_PER_VERSION + 3)


async def test_a_call_that_adds_items_is_one_commit_with_a_version(store: holdfast.Store) -> None:
    """`holdfast versions`, `fork` and `rewind` know it, and the calls have their results."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one")])
    await session.add_items([call("c1"), call("c2"), output("c1"), output("c2")])
    await session.add_items([assistant("two")])
    found = [one async for one in store.checkpoints("ann")]
    assert [one.version for one in found] == [1, 2, 3]
    assert all(one.continuable for one in found)
    head = await store.head("ann")
    assert (head.title, head.messages) == ("one", 4)
    assert dict(head.labels) == {"agent_framework": "openai-agents"}


async def test_a_fork_goes_its_own_way(store: holdfast.Store) -> None:
    """From the latest version or an earlier one; the origin is not changed."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one"), assistant("two")])
    await session.add_items([user("three")])
    early, late = await session.fork("ann/early", version=1), await session.fork("late")
    assert early.session_id == "ann/early"
    await early.add_items([user("other")])
    assert await early.get_items() == [user("one"), assistant("two"), user("other")]
    assert await late.get_items() == [user("one"), assistant("two"), user("three")]
    assert await late.pop_item() == user("three")
    assert await late.pop_item() == assistant("two")
    assert await late.get_items() == [user("one")]
    assert len(await session.get_items()) == 3


async def test_a_session_goes_back_to_a_version(store: holdfast.Store) -> None:
    """And forward again, also where another object has read it."""
    session, other = HoldfastSession("ann", store), HoldfastSession("ann", store)
    await session.add_items([user("one"), assistant("two")])
    await session.add_items([user("three")])
    assert len(await other.get_items()) == 3
    await session.rewind(1)
    assert await other.get_items() == [user("one"), assistant("two")]
    await other.add_items([user("four")])
    await session.rewind(2)
    assert await session.get_items() == [user("one"), assistant("two"), user("three")]


async def test_what_was_submitted_by_other_means_is_part_of_it(store: holdfast.Store) -> None:
    """Texts are items; what the SDK cannot be given is refused in words."""
    async with store.session("ann") as held:
        await held.add("Hello?")
        await held.checkpoint()
    session = HoldfastSession("ann", store)
    assert await session.get_items() == [user("Hello?")]
    async with store.session("ann") as held:
        await held.add({"role": "user", "content": "Hello?"}, format="openai")
        with pytest.raises(holdfast.errors.LeaseHeld):
            await session.add_items([user("one")])
    with pytest.raises(holdfast.errors.BadInput, match="'ann' holds openai messages"):
        await session.get_items()


async def test_an_item_that_json_cannot_hold_is_refused(store: holdfast.Store) -> None:
    """Before anything is written."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one")])
    wrongs: list[Any] = [{"role": "user", "content": float("nan")}, {"role": "user", "content": {1}}, "text"]
    for wrong in wrongs:
        with pytest.raises(holdfast.errors.BadInput):
            await session.add_items([user("two"), wrong])
    assert await session.get_items() == [user("one")]


# -- copies ----------------------------------------------------------------------------------------------


async def test_a_session_of_the_sdk_is_copied(store: holdfast.Store, tmp_path: Path) -> None:
    """All of it, whatever its settings say; a second time changes nothing."""
    items = [user("one"), call("c1"), output("c1"), assistant("two")]
    theirs = SQLiteSession("ann", tmp_path / "theirs.db", session_settings={"limit": 1})
    await theirs.add_items(items)
    session = HoldfastSession("ann", store)
    assert await session.copy_from(theirs) == 4
    assert await session.copy_from(theirs) == 4
    assert await session.get_items() == items
    await session.add_items([user("three")])
    assert await session.copy_from(theirs) == 4
    assert await session.get_items() == [*items, user("three")]
    theirs.close()


async def test_a_session_with_another_history_is_not_copied_into(store: holdfast.Store) -> None:
    """It would be two conversations in one."""
    session, other = HoldfastSession("ann", store), HoldfastSession("bob", store)
    await session.add_items([user("one")])
    await other.add_items([user("two")])
    with pytest.raises(holdfast.errors.BadInput, match="has a history of its own"):
        await session.copy_from(other)
    assert await session.get_items() == [user("one")]


# -- compaction ------------------------------------------------------------------------------------------


class Compactor:
    """Stands for the client of OpenAI: it makes one item of all."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.responses = SimpleNamespace(compact=self._compact)

    async def _compact(self, **request: Any) -> Any:
        self.inputs.append(request["input"])
        made = {"type": "compaction", "id": "cmp_1", "encrypted_content": f"all {len(request['input'])}"}
        return SimpleNamespace(output=[made], usage=None)


def talker(*texts: str) -> Agent[Any]:
    """An agent that only talks."""
    return Agent(name="clerk", model=ScriptedModel([[assistant_message(text)] for text in texts]))


OPTIONS = {"compaction_mode": "input", "should_trigger_compaction": lambda context: True}


async def test_the_history_is_compacted_in_one_commit(store: holdfast.Store) -> None:
    """After a run, as the SDK's own session does it; the versions before it stay."""
    client = Compactor()
    session = HoldfastSession("ann", store, compaction={**OPTIONS, "client": client})
    await Runner.run(talker("Yes."), "one", session=session)
    found: Any = await session.get_items()
    assert [item["type"] for item in found] == ["compaction"]
    assert [len(one) for one in client.inputs] == [2]
    entries = [entry async for entry in store.tail("ann", follow=False)]
    (at,) = [place for place, entry in enumerate(entries) if isinstance(entry.body, SessionRewound)]
    assert isinstance(entries[at + 1].body, MessageAdded)
    assert len(await (await session.fork("before", version=2)).get_items()) == 2


async def test_a_compaction_that_fails_leaves_the_history(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the request, and at the write."""
    session = HoldfastSession("ann", store, compaction={**OPTIONS, "client": Compactor()})
    await session.add_items([user("one"), assistant("two")])

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no connection")

    monkeypatch.setattr(session, "replace_items", fail)
    with pytest.raises(RuntimeError):
        await session.run_compaction({"force": True})
    assert await session.get_items() == [user("one"), assistant("two")]


async def test_without_compaction_the_sdk_does_not_ask_for_it(store: holdfast.Store) -> None:
    """It looks for a method of this name. Wrong options are refused at once."""
    assert not hasattr(HoldfastSession("ann", store), "run_compaction")
    with pytest.raises(ValueError, match="Unsupported model"):
        HoldfastSession("ann", store, compaction={"model": "of-nobody"})


async def test_it_can_be_wrapped_by_the_sessions_of_the_sdk(store: holdfast.Store) -> None:
    """As their compacting session wraps any other one."""
    client: Any = Compactor()
    inner = HoldfastSession("ann", store)
    session = OpenAIResponsesCompactionSession(
        "ann", inner, client=client, should_trigger_compaction=lambda _: True, compaction_mode="input"
    )
    await Runner.run(talker("Yes."), "one", session=session)
    found: Any = await inner.get_items()
    assert [item["type"] for item in found] == ["compaction"]


# -- stores ----------------------------------------------------------------------------------------------


def test_one_session_is_used_by_several_event_loops(tmp_path: Path) -> None:
    """`run_sync` has one of its own."""
    session = HoldfastSession.from_url("ann", url=f"sqlite:{tmp_path}/store")
    agent = talker("Yes.", "And yes.")
    for prompt in ("one", "two"):
        Runner.run_sync(agent, prompt, session=session)
    with blocking.open_store(f"sqlite:{tmp_path}/store") as store:
        assert len(store.load("ann").transcript) == 4
    session.close()
    with pytest.raises(holdfast.errors.Closed):
        Runner.run_sync(agent, "three", session=session)


async def test_closing_may_be_awaited_and_leaves_a_given_store_open(tmp_path: Path) -> None:
    """`close()` of the SDK's sessions is awaited for some, and for others not."""
    own = HoldfastSession.from_url("ann", url=tmp_path / "store")
    await own.add_items([user("one")])
    await own.close()
    await own.close()
    with pytest.raises(holdfast.errors.Closed):
        await own.add_items([])
    never_used = HoldfastSession.from_url("ann", url=tmp_path / "store")
    never_used.close()
    with pytest.raises(holdfast.errors.Closed):
        await never_used.get_items()
    async with holdfast.open_store(tmp_path / "store") as store:
        session = HoldfastSession("ann", store)
        assert await session.get_items() == [user("one")]
        session.close()
        assert await session.get_items() == [user("one")]


async def test_the_environment_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `url`."""
    monkeypatch.setenv("HOLDFAST_STORE", f"dir:{tmp_path}/store")
    session = HoldfastSession.from_url("ann")
    await session.add_items([user("one")])
    await session.aclose()
    assert await read_anew(f"dir:{tmp_path}/store") == [user("one")]


def test_a_wrong_store_is_refused_at_once() -> None:
    """Not when it is first needed."""
    with pytest.raises(holdfast.errors.BadUrl):
        HoldfastSession("ann", "nothing://here")
    with pytest.raises(TypeError, match="limitt"):
        HoldfastSession("ann", "memory:", session_settings={"limitt": 1})

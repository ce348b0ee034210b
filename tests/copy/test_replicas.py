"""What can be done with a replica, and with a session that begins with one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import Agent, Landed, NotLanded, Registry, Store, ToolContext, open_store, tool
from holdfast.agents import ScriptedModel
from holdfast.core.session_state import SessionState
from holdfast.drivers.contract import ClaimChange, Driver
from holdfast.errors import BadInput, LeaseHeld, LostBlob, NotFound, ReadOnlyReplica
from holdfast.ids import HolderId
from holdfast.records import Parent
from holdfast.system.clock import utc_now
from holdfast.tools import Result
from tests.internals import engine_of
from tests.session.example_sessions import kinds, step, texts
from tests.tools.example_tools import World
from tests.worker.example_workers import work


async def make(store: Store, name: str = "s") -> None:
    """A session with two versions."""
    async with store.session(name) as session:
        await step(session, "one")
        await step(session, "two")


REFUSED: dict[str, Callable[[Store], Awaitable[object]]] = {
    "opened": lambda store: store.session("s").__aenter__(),
    "sent a message": lambda store: store.submit("s", "hello"),
    "sent work": lambda store: store.submit("s", "hello", agent="clerk"),
    "cancelled": lambda store: store.cancel("s"),
    "erased": lambda store: store.clean("s", checkpoints=False),
    "rid of versions": lambda store: store.drop("s", 1),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_replica_is_only_read(what: str, store_url: str | Driver) -> None:
    """It is refused whatever would change it, with the store where it can be done; nothing was written."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source)
        await source.copy(target)
        before = await kinds(target, "s")
        with pytest.raises(ReadOnlyReplica) as refused:
            await REFUSED[what](target)
        assert (refused.value.session, refused.value.store) == ("s", engine_of(source).driver.store_id())
        assert await kinds(target, "s") == before
        assert texts((await target.load("s")).transcript) == ["one", "two"]
        assert (await target.head("s")).replica


async def test_a_replica_is_deleted_and_copied_again(store_url: str | Driver) -> None:
    """Its id is free at once, for a session of the target's own, too."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source)
        await source.copy(target)
        await target.delete("s")
        with pytest.raises(NotFound):
            await target.load("s")
        await source.copy(target)
        await target.delete("s")
        await make(target)
        with pytest.raises(BadInput, match="already"):
            await source.copy(target)
        async with target.session("s") as session:
            await session.add("three")


async def test_a_worker_leaves_replicas_alone(store_url: str | Driver) -> None:
    """They are due where they are driven; its own sessions are worked on."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        for name in ("a", "b"):
            await source.submit(name, "hello", agent="clerk")
        await source.copy(target)
        await target.submit("c", "hello", agent="clerk")
        with anyio.fail_after(300):
            done = await work(target, Agent(ScriptedModel(["done"]), name="clerk"))
        assert done == [("c", "taken"), ("c", "completed")]
        assert [head.session async for head in target.sessions(status="completed")] == ["c"]
        for name in ("a", "b"):
            assert await kinds(target, name) == await kinds(source, name)


async def test_a_copy_brings_what_is_new(store_url: str | Driver) -> None:
    """Also while the session is driven: what was durable is there."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        async with source.session("s") as session:
            for number in range(5):
                await step(session, f"message {number}")
                copied = await source.copy(target)
                assert copied.sessions[0].before + copied.sessions[0].entries == session.state.seq
                assert len((await target.load("s")).transcript) == number + 1
        copied = await source.copy(target)
        assert copied.entries == 1
        assert await kinds(target, "s") == await kinds(source, "s")


async def test_a_dry_run_writes_nothing(store_url: str | Driver) -> None:
    """It says what would be copied."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source)
        planned = await source.copy(target, dry_run=True)
        assert [head async for head in target.sessions()] == []
        done = await source.copy(target)
        assert (planned.sessions, planned.entries) == (done.sessions, done.entries)
        assert planned.dry_run


async def test_copies_at_once_make_one_replica(store_url: str | Driver) -> None:
    """Each of them finds what the others have written."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        for name in ("a", "b", "c"):
            await make(source, name)
        await source.fork("a", into="d")
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(source.copy, target)
        for name in ("a", "b", "c", "d"):
            assert await kinds(target, name) == await kinds(source, name)


async def test_a_family_is_copied_with_what_it_needs(store_url: str | Driver) -> None:
    """Parents, delegates of all of them, and the origins of forks; nothing else."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source, "root")
        for name, parent in (("child", "root"), ("sibling", "root"), ("grandchild", "child")):
            async with source.session(name, parent=Parent(session=parent)):
                pass
        await make(source, "stranger")
        await make(source, "origin")
        await source.fork("origin", into="fork", version=1)
        await source.copy(target, ["child"])
        found = [head.session async for head in target.sessions()]
        assert found == ["child", "grandchild", "root", "sibling"]
        await source.copy(target, ["fork"])
        found = [head.session async for head in target.sessions()]
        assert found == ["child", "fork", "grandchild", "origin", "root", "sibling"]
        with pytest.raises(NotFound):
            await source.copy(target, ["nobody"])


async def test_forks_of_a_deleted_session_may_be_copied_one_by_one(store_url: str | Driver) -> None:
    """The target is given the part of its history that each of them needs."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source)
        await source.fork("s", version=1, into="early")
        await source.fork("s", version=2, into="late")
        await source.delete("s")
        for name in ("early", "late", "early"):
            await source.copy(target, [name])
            state = await target.load(name)
            assert texts(state.transcript) == texts((await source.load(name)).transcript)
        assert [head.session async for head in target.sessions()] == ["early", "late"]


async def test_what_was_erased_since_is_erased_in_the_copy(store_url: str | Driver) -> None:
    """Unless a fork in the target has it: then the copy says so."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        for name in ("free", "forked"):
            await make(source, name)
        await source.copy(target)
        await target.fork("forked", into="fork")
        for name in ("free", "forked"):
            await source.clean(name, checkpoints=False)
        copied = await source.copy(target)
        assert copied.not_erased == ("forked",)
        assert texts((await target.load("free")).transcript) == texts((await source.load("free")).transcript)
        assert texts((await target.load("forked")).transcript) == ["one", "two"]


async def test_a_source_that_is_the_target_is_refused(tmp_path: Path) -> None:
    """Also under another name, and as a copy of its file."""
    url = f"sqlite:{tmp_path}/a.db"
    async with open_store(url) as store:
        await make(store)
        with pytest.raises(BadInput, match="one store"):
            await store.copy(url)


async def test_blobs_are_copied_into_the_home_of_the_target(tmp_path: Path) -> None:
    """Whatever home each store has; a blob that is missing is named."""
    async with (
        open_store(f"dir:{tmp_path}/a", blobs=f"dir:{tmp_path}/home-a") as source,
        open_store(f"sqlite:{tmp_path}/b.db", blobs=f"dir:{tmp_path}/home-b") as target,
    ):
        async with source.session("s") as session:
            await session.set("photo", b"x" * 100_000)
            await session.set("lost", b"y" * 100_000)
        lost = max(blob.digest for blob in [one async for one in source.blobs()])
        assert engine_of(source).home.remove(lost, put_before=utc_now() + timedelta(days=1))
        copied = await source.copy(target)
        assert copied.lost_blobs == (lost,)
        state = await target.load("s")
        values = [_read(state, key) for key in ("photo", "lost")]
        assert sorted(map(type, values), key=str) == sorted([bytes, LostBlob], key=str)


def _read(state: SessionState, key: str) -> object:
    try:
        return state.get(key)
    except LostBlob as error:
        return error


# -- sessions that begin with a replica ------------------------------------------------------------------


class Service:
    """A payment whose first attempt fails in the middle."""

    def __init__(self) -> None:
        self.world, self.asked = World(), 0

    @property
    def registry(self) -> Registry:
        """The tool, with a hook that can tell what became of it."""
        return self._make(verify=self._verify)

    @property
    def blind_registry(self) -> Registry:
        """The same without a hook: the payment stays in doubt."""
        return self._make()

    def _make(self, **options: Any) -> Registry:
        @tool(side_effects={"mutate"}, **options)
        async def pay(ctx: ToolContext[Any], to: str) -> str:
            self.world.do(to, ctx.key)
            if len(self.world.done) == 1:
                raise ConnectionError
            return f"paid {to}"

        return Registry([pay])

    def _verify(self, ctx: ToolContext[Any], to: str) -> Landed | NotLanded:
        self.asked += 1
        return Landed("paid") if ctx.key in self.world.keys else NotLanded()


async def _pay(registry: Registry, store: Store, name: str, id: str = "c1") -> Result:
    async with store.session(name, create=False) as session:
        return await registry.dispatch("pay", {"to": "ann"}, call_id=id, session=session)


async def _leave_in_doubt(service: Service, store: Store) -> None:
    async with store.session("s") as session:
        await step(session, "pay ann")
        found = await service.blind_registry.dispatch("pay", {"to": "ann"}, call_id="c1", session=session)
        assert found.status == "in_doubt"
        await session.checkpoint()


async def test_a_copy_that_is_driven_leaves_inherited_doubts_to_the_original(
    store_url: str | Driver,
) -> None:
    """It neither asks verify nor runs the call again; the original does, and the next copy knows."""
    service = Service()
    async with open_store("memory:") as source, open_store(store_url) as target:
        await _leave_in_doubt(service, source)
        copied = await source.copy(target, ["s"], into="new")
        assert copied.made == "new"
        async with target.session("new", create=False) as session:
            assert [row.tool for row in session.in_doubt] == ["pay"]
            await service.registry.settle(session)
            await session.add("go on")
            await session.checkpoint()
        for call in ("c1", "c2"):
            found = await _pay(service.registry, target, "new", call)
            assert found.status == "in_doubt"
        assert (service.asked, service.world.done) == (0, ["ann"])
        assert [doubt.session async for doubt in target.in_doubt()] == ["new"]
        # Where it was issued, it is settled.
        async with source.session("s") as session:
            await service.registry.settle(session)
        found = await _pay(service.registry, source, "s", "c2")
        assert (found.status, service.asked, service.world.done) == ("completed", 1, ["ann"])
        assert (await source.copy(target, ["s"], into="new")).made == "new"
        assert "session.copied" in await kinds(target, "new")


@pytest.mark.parametrize("verdict", ["landed", "not_landed"])
async def test_a_person_may_answer_in_the_copy_for_the_copy(verdict: Any, store_url: str | Driver) -> None:
    """What did not land is done by the copy under a key of its own; the original is not told."""
    service = Service()
    async with open_store("memory:") as source, open_store(store_url) as target:
        await _leave_in_doubt(service, source)
        await source.copy(target, ["s"], into="new")
        assert await target.resolve("new", "c1", verdict, by="ann") == "settled"
        found = await _pay(service.registry, target, "new", "c2")
        assert found.status == "completed"
        if verdict == "landed":
            assert service.world.done == ["ann"]
        else:
            original, own = service.world.keys
            assert original != own
        assert [row.tool for row in (await source.load("s")).in_doubt] == ["pay"]
        assert [key for key, _ in engine_of(target).driver.list_claims(None, 100)] == ["replica:s"]
        assert (await source.copy(target)).entries == 0


async def test_a_fork_of_a_replica_is_such_a_copy(store_url: str | Driver) -> None:
    """And so is a fork of that fork."""
    service = Service()
    async with open_store("memory:") as source, open_store(store_url) as target:
        await _leave_in_doubt(service, source)
        await source.copy(target)
        for origin, into in (("s", "fork"), ("fork", "fork-of-it")):
            await target.fork(origin, into=into)
            found = await _pay(service.registry, target, into)
            assert found.status == "in_doubt"
            async with target.session(into) as session:
                await session.checkpoint()
        assert (service.asked, service.world.done) == (0, ["ann"])


async def test_a_new_id_is_taken_once(store_url: str | Driver) -> None:
    """Of a session of another origin, or without a version to begin with."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source)
        await make(source, "other")
        async with source.session("bare") as session:
            await session.add("no version")
        for _ in range(2):
            await source.copy(target, ["s"], into="new")
        assert texts((await target.load("new")).transcript) == ["one", "two"]
        with pytest.raises(BadInput, match="already"):
            await source.copy(target, ["other"], into="new")
        with pytest.raises(BadInput, match="name one session"):
            await source.copy(target, into="new")
        await source.copy(target, ["bare"], into="barer")
        async with target.session("barer") as session:
            assert texts(session.transcript) == ["no version"]


# -- claims and holders --------------------------------------------------------------------------------------


@tool(side_effects={"mutate"}, scope="global")
async def welcome(to: str) -> str:
    """Welcome somebody, once ever."""
    if to == "bob":
        raise ConnectionError
    return f"welcomed {to}"


async def _welcome(store: Store, name: str, to: str) -> Result:
    async with store.session(name) as session:
        return await Registry([welcome]).dispatch("welcome", {"to": to}, session=session)


async def test_global_operations_are_known_in_the_target(store_url: str | Driver) -> None:
    """What was done is not done again; what is in doubt, or not yet begun, is left to the original."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        assert (await _welcome(source, "s", "ann")).status == "completed"
        assert (await _welcome(source, "s", "bob")).status == "in_doubt"
        await source.copy(target)
        found = await _welcome(target, "other", "ann")
        assert (found.status, found.value) == ("completed", "welcomed ann")
        found = await _welcome(target, "other", "bob")
        assert found.status == "in_doubt"
        await target.delete("s")
        found = await _welcome(target, "other", "bob")
        assert found.status == "in_doubt"
        assert [doubt.operation is not None async for doubt in target.in_doubt()] == [True]


async def test_two_records_of_one_effect_stop_the_copy_before_anything_is_written(
    store_url: str | Driver,
) -> None:
    """Both stores did it: only one of them could be kept."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await _welcome(source, "s", "ann")
        await _welcome(target, "other", "ann")
        with pytest.raises(BadInput, match="both stores have a record"):
            await source.copy(target)
        assert [head.session async for head in target.sessions()] == ["other"]


async def test_a_named_lease_has_the_larger_fence(store_url: str | Driver) -> None:
    """Whichever store it comes from; its holder is not taken for one that has ended."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        for store, times in ((source, 3), (target, 1)):
            for name in ("printer", "door"):
                async with store.session("s" if store is source else "t") as session:
                    for _ in range(times if name == "printer" else 4 - times):
                        async with session.hold(name):
                            pass
        async with source.session("s") as session, session.hold("printer"):
            await source.copy(target)
            async with target.session("t") as other:
                with pytest.raises(LeaseHeld):
                    async with other.hold("printer"):
                        pass
                async with other.hold("door") as held:
                    assert held.fence == 4
        await source.copy(target)
        async with target.session("t") as other, other.hold("printer") as held:
            assert held.fence == 5


async def test_a_holder_that_the_target_does_not_know_has_never_ended() -> None:
    """Nothing in the target can prove it; one that has ended, provably, is not named."""
    ended = HolderId("e" * 32)
    async with open_store("memory:") as source, open_store("memory:") as target:
        first, second = engine_of(source), engine_of(target)
        first.driver.claim(ClaimChange(key="hold:x", expect=None, record=f'{{"fence":1,"holder":"{ended}"}}'))
        async with source.session("s") as session, session.hold("printer"):
            await source.copy(target)
        assert not second.heartbeat.judge(first.heartbeat.holder).ended
        assert second.heartbeat.judge(ended).ended

"""Stores with everything in them that a copy must bring, in a random order; and what a store holds."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import msgspec

from holdfast import Registry, Store, tool
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.content.references import find_digests
from holdfast.drivers.contract import Driver, HeadFilter, hidden_name
from holdfast.engine.journal import Journal
from holdfast.ids import SessionId
from holdfast.records import Parent
from holdfast.testing.conformance.author import read_all
from tests.internals import engine_of
from tests.langgraph.checkpoints_by_hand import Writer
from tests.openai_agents.items_by_hand import assistant, user

LARGE = 70_000
"""Bytes of a value that is kept as a blob."""


class Crash(Exception):
    """A body failed in the middle: whether it did anything is not known."""


@tool(side_effects={"mutate"})
async def pay(cents: int) -> str:
    """Pay; some payments fail in the middle."""
    if cents % 3 == 0:
        raise Crash
    return f"paid {cents}" * (LARGE if cents % 5 == 0 else 1)


@tool(side_effects={"mutate"}, scope="global")
async def welcome(to: str) -> str:
    """Welcome somebody, once ever."""
    if to == "nobody":
        raise Crash
    return f"welcomed {to}"


@tool(side_effects={"mutate"}, needs_approval=True)
async def fire(who: str) -> str:
    """Ask a person first."""
    return f"fired {who}"


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


REGISTRY = Registry([pay, welcome, fire, look], max_repeats=10**6)


class RandomStore:
    """Fills a store, step by step."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.choose = store, random.Random(seed)
        self.sessions: list[str] = []
        self.made = 0

    async def fill(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            await self.choose.choices(
                [self.work, self.begin, self.fork, self.submit, self.erase, self.delete, self.adapt],
                [8, 3, 3, 2, 1, 1, 2],
            )[0]()

    def any_session(self) -> str | None:
        """One of those that are there."""
        return self.choose.choice(self.sessions) if self.sessions else None

    def _name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}.{self.made}"

    async def begin(self) -> None:
        """A session, perhaps a delegate's."""
        name, parent = self._name("s"), self.any_session()
        child = Parent(session=parent) if parent and self.choose.random() < 0.4 else None
        async with self.store.session(name, labels={"n": str(self.made)}, parent=child) as session:
            await session.add(f"hello {name}")
            await session.checkpoint()
        self.sessions.append(name)

    async def work(self) -> None:
        """What an agent does in a session."""
        name = self.any_session()
        if name is None:
            return await self.begin()
        choose = self.choose
        async with self.store.session(name) as session:
            for _ in range(choose.randint(1, 4)):
                match choose.randrange(8):
                    case 0:
                        await session.set("photo", choose.randbytes(LARGE))
                    case 1:
                        await REGISTRY.dispatch("pay", {"cents": choose.randint(1, 30)}, session=session)
                    case 2:
                        to = choose.choice(["ann", "bob", "nobody", name])
                        await REGISTRY.dispatch("welcome", {"to": to}, session=session)
                    case 3:
                        await REGISTRY.dispatch("fire", {"who": "ann"}, session=session)
                    case 4:
                        await REGISTRY.dispatch("look", {"where": "box"}, session=session)
                    case 5:
                        async with session.hold(choose.choice(["printer", "door"])):
                            await session.set("held", True)
                    case 6:
                        await session.label(mood=choose.choice(["good", "bad"]))
                    case _:
                        await session.add("words " * choose.randint(1, 500))
            if choose.random() < 0.7:
                await session.checkpoint()

    async def fork(self) -> None:
        """A fork of some version."""
        name = self.any_session()
        if name is None:
            return
        versions = [one.version async for one in self.store.checkpoints(name)]
        if versions:
            into = self._name("f")
            await self.store.fork(name, version=self.choose.choice(versions), into=into)
            self.sessions.append(into)

    async def submit(self) -> None:
        """A message in an inbox."""
        name = self.any_session()
        if name is not None:
            await self.store.submit(name, "psst", key=self._name("key"))

    async def erase(self) -> None:
        """What was said in a session is erased."""
        name = self.any_session()
        if name is not None:
            await self.store.clean(name, checkpoints=False)

    async def delete(self) -> None:
        """A session goes; its forks keep what they need."""
        if len(self.sessions) > 2:
            name = self.choose.choice(self.sessions)
            self.sessions.remove(name)
            await self.store.delete(name)

    async def adapt(self) -> None:
        """What a framework keeps."""
        name = self._name("t")
        if self.choose.random() < 0.5:
            saver = HoldfastSaver(self.store)
            writer = Writer(saver, name)
            await writer.put(said=["hello"], n=self.made)
            await writer.put(said=["hello", "you" * LARGE], n=self.made)
            if self.choose.random() < 0.5:
                await saver.acopy_thread(name, f"{name}.copy")
        else:
            session = HoldfastSession(name, self.store)
            await session.add_items([user("hello"), assistant("hello yourself")])


class Holding(NamedTuple):
    """All that is kept of one journal, and what it means."""

    chunks: Any
    facts: Any
    said: list[str]
    inbox: list[tuple[int, bytes]]
    posted: int
    keyframe: bytes | None
    labels: dict[str, str]


class Contents(NamedTuple):
    """What a store holds, in a form that two stores can be compared in."""

    sessions: dict[str, Holding]
    hidden: dict[str, Any]
    claims: dict[str, str]
    blobs: dict[str, tuple[bytes, Any]]


def contents_of(store: Store) -> Contents:
    """Everything but what says that a session is a replica."""
    engine = engine_of(store)
    driver = engine.driver
    sessions: dict[str, Holding] = {}
    hidden: dict[str, Any] = {}
    for tip in driver.list_tips(HeadFilter(), None, 10_000):
        journal = Journal(driver, tip.session, engine.blobs)
        state = journal.fold()
        facts = msgspec.json.decode(msgspec.json.encode(state.facts))
        sessions[tip.session] = Holding(
            chunks=read_all(driver, tip.session),
            facts=facts,
            said=[message.text for message in state.transcript],
            inbox=[(row.number, row.item) for row in driver.read_inbox(tip.session, 0, 10_000)],
            posted=tip.posted,
            keyframe=driver.find_keyframe(tip.session),
            labels=dict(tip.head.labels) if tip.head else {},
        )
        for segment in journal.segments:
            if segment.name == hidden_name(segment.uid):
                hidden[segment.name] = _needed(driver, segment.name, segment.last or 0)
    claims = {key: record for key, record in driver.list_claims(None, 10_000) if "replica:" not in key}
    stored = [claims, hidden, *((one.chunks, one.inbox) for one in sessions.values())]
    wanted = find_digests(repr(stored).encode())
    return Contents(sessions, hidden, claims, _blobs(driver, wanted))


def _needed(driver: Driver, name: SessionId, last: int) -> Any:
    page = driver.read(name, 0, 10_000, said=True)
    return page.sums, page.facts, page.details, page.said


def _blobs(driver: Driver, wanted: set[str]) -> dict[str, tuple[bytes, Any]]:
    found: dict[str, tuple[bytes, Any]] = {}
    for one in driver.blobs.list_blobs(None, 10_000):
        if one.digest not in wanted:
            continue  # What was erased is not copied.
        stored = driver.blobs.find(one.digest)
        assert stored is not None
        found[one.digest] = b"".join(stored.parts), stored.context
    return found


async def fill(store: Store, seed: int, steps: int) -> None:
    """Fill a store, the same way for the same seed but for ids that are random."""
    await RandomStore(store, seed).fill(steps)


def names_of(contents: Contents) -> set[str]:
    """The sessions in it."""
    return set(contents.sessions)


async def replicas(store: Store) -> dict[str, bool]:
    """The sessions of a store, and whether each is a replica."""
    return {head.session: head.replica async for head in store.sessions()}

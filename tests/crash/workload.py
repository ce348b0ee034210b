"""The life of a store, with every operation there is, in steps that can be interrupted anywhere.

Three sessions are driven at once, so that commits carry the lines of several; then a fourth one, the keeper,
does what is done to sessions as a whole: forks, forks of forks, deletions, erasure. Each session notes in a
label how far it has come (labels are not rewound). Who comes after a crash opens the sessions again and goes
on from there; a step that was cut short is done again from its beginning.

A life can be lived in stages, each by another process: in a stage every driven session takes one step, or the
keeper does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import anyio
import anyio.to_thread
from msgspec import Raw

from holdfast import Budget, Session, Store, open_store
from holdfast.blobs.home import BlobContext
from holdfast.core.entries import StateSet
from holdfast.drivers.contract import ClaimChange, Done, Driver
from holdfast.engine.committer import make_append
from holdfast.errors import NotFound
from holdfast.ids import SessionId
from holdfast.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult
from holdfast.records import Plan, PlanStep, SessionState, Usage
from tests.internals import engine_of, take_keyframes_after
from tests.stores import open_driver

from .acknowledged import Acks

Step: TypeAlias = Callable[["Life", Session], Awaitable[None]]

KEEPER: Final = "keeper"
LEDGER: Final = SessionId("ledger")
BLOB: Final = b"a picture, say" * 100
BLOB_DIGEST: Final = hashlib.sha256(BLOB).hexdigest()
KEYFRAME_ENTRIES: Final = 12
"""So that a short life has keyframes."""


class Life:
    """One process's part of the work: it opens the store and goes on until everything is done."""

    def __init__(self, url: str, acks: Acks) -> None:
        self._url = url
        self.acks = acks
        self.driver: Driver
        self.store: Store

    def run(self, until: int | None = None) -> None:
        """Do what is left to do, to the end or only until the end of this stage, counted from 1."""
        take_keyframes_after(KEYFRAME_ENTRIES)
        anyio.run(self._live, STAGES if until is None else until)

    async def _live(self, until: int) -> None:
        self.driver = await anyio.to_thread.run_sync(open_driver, self._url)
        async with open_store(self.driver, linger_s=0.002) as self.store:
            # Once the keeper is at work, others are deleted on purpose.
            if not await self._progress(KEEPER):
                async with anyio.create_task_group() as tasks:
                    for name, steps in DRIVING.items():
                        tasks.start_soon(self.drive, name, steps[:until])
            await self.drive(KEEPER, KEEPING[: max(0, until - _KEEPER_BEGINS)])

    async def drive(self, name: str, steps: tuple[Step, ...], label: str = "at") -> None:
        """Take every step that was not taken yet."""
        if await self._progress(name, label) >= len(steps):
            return
        async with self.store.session(name, wait_s=60) as session:
            self.acks.lines(session)
            for number in range(int(session.labels.get(label, 0)), len(steps)):
                await steps[number](self, session)
                await session.label(**{label: str(number + 1)})
                await session.flush()
                self.acks.lines(session)

    async def _progress(self, name: str, label: str = "at") -> int:
        state = await self.find(name)
        return int(state.facts.head.labels.get(label, 0)) if state else 0

    async def find(self, name: str) -> SessionState | None:
        """The session as it is, or None."""
        try:
            return await self.store.load(name)
        except NotFound:
            return None

    async def fork(self, origin: str, into: str) -> None:
        """Fork, unless that was done."""
        if await self.find(into) is None:
            await self.store.fork(origin, into=into, labels={"branch": "0"})
            await self._note_lines(into)

    async def delete(self, name: str) -> None:
        """Delete, unless that was done."""
        state = await self.find(name)
        if state is None:
            return
        uid = state.facts.head.uid
        self.acks.note("deleting", uid=uid)
        await self.store.delete(name, wait_s=60)
        self.acks.note("deleted", session=name, uid=uid)

    async def _note_lines(self, name: str) -> None:
        head = (await self.store.load(name)).facts.head
        self.acks.note("lines", session=name, uid=head.uid, seq=head.seq, sum=head.sum)


# -- what is done in a session ------------------------------------------------------------------------


async def _talk(life: Life, session: Session) -> None:
    """Messages of several kinds; the first ones are not waited for."""
    await session.add(f"Hello from {session.id}")
    await session.add(
        Message(
            role="assistant",
            blocks=(
                Reasoning("hm", metadata={"signature": "s"}),
                Text("Look: \u00e9\u2028\U0001f980"),
                Media(media_type="image/png", data=bytes(range(256))),
            ),
        )
    )
    await session.add({"role": "user", "content": "verbatim"}, format="openai")
    await session.flush()
    life.acks.lines(session)
    await session.set("cart", {"items": [1, 2.5, None]})
    await session.set("opaque", object)
    await session.checkpoint("talked")
    life.acks.lines(session)


async def _ask(life: Life, session: Session) -> None:
    """A run with a request that is answered, and one that is not."""
    async with session.run(agent="planner", model="m", instructions="be brief") as run:
        async with run.request(reserve_usd=0.05, reserve_tokens=10) as request:
            life.acks.lines(session)
            call = ToolCall(id="call_0", name="lookup", args={"order": "42"})
            await request.reply(
                Message(role="assistant", blocks=(Text("one moment"), call)),
                usage=Usage(input_tokens=3, output_tokens=4),
                cost_usd=0.01,
            )
            life.acks.lines(session)
        result = ToolResult(call_id="call_0", content="found", value={"n": 1})
        await session.add(Message(role="tool", blocks=(result,)))
        async with run.request():
            pass
        await session.checkpoint()
        life.acks.lines(session)
        run.complete({"ok": True})
    life.acks.lines(session)


async def _plan(life: Life, session: Session) -> None:
    """State of every kind, none of it waited for until the end."""
    steps = (PlanStep(id="a", what="look"), PlanStep(id="b", what="leap", postcondition="landed"))
    await session.set_plan(Plan(goal="get there", steps=steps))
    await session.set_summary("so far, so good")
    await session.set_budget(Budget(usd=5, tokens=10_000))
    await session.label(tenant="a", passing="by")
    await session.label(passing=None)
    await session.unset("opaque")
    await session.flush()
    life.acks.lines(session)


async def _run_by_name(life: Life, session: Session) -> None:
    """An explicit run id, which no other run may have, with an automatic one inside."""
    name = f"{session.state.facts.head.uid}-{len(session.state.facts.runs)}"
    async with session.run(run_id=name) as run:
        life.acks.lines(session)
        life.acks.note("ran", run=name, session=session.id, uid=session.state.facts.head.uid)
        async with session.run(agent="helper"):
            await session.add("inside")
        run.fail("step_limit")
    life.acks.lines(session)


async def _read_mail(life: Life, session: Session) -> None:
    """Others post, the holder takes in. The second message was submitted before."""
    uid = session.state.facts.head.uid
    for text, key in (("first", "k1"), ("again", "k1"), ("last", None)):
        number = await life.store.submit(session.id, text, key=key)
        life.acks.note("posted", session=session.id, uid=uid, number=number)
    number = await life.store.cancel(session.id, by="somebody", reason="enough")
    life.acks.note("posted", session=session.id, uid=uid, number=number)
    await session.label(read="yes")
    await session.flush()
    life.acks.lines(session)
    await session.checkpoint()
    await life.store.submit(session.id, "left in the inbox")


async def _keep_on(life: Life, session: Session) -> None:
    """Enough lines for a keyframe, in few commits."""
    for number in range(KEYFRAME_ENTRIES):
        await session.set(f"n{number % 3}", number)
        if number % 5 == 4:
            await session.checkpoint()
            life.acks.lines(session)


async def _go_back(life: Life, session: Session) -> None:
    """By steps and by version; also to a version that was left behind. One version is dropped."""
    await session.add("this way")
    await session.checkpoint()
    await session.rewind(steps=1)
    life.acks.lines(session)
    await session.add("another way")
    left_behind = await session.checkpoint()
    await session.rewind(version=session.checkpoints[0].version)
    life.acks.lines(session)
    await session.rewind(version=left_behind)
    life.acks.lines(session)
    await session.drop(session.checkpoints[1].version)
    life.acks.lines(session)


async def _share(life: Life, session: Session) -> None:
    """Something that only one can have at a time."""
    async with session.hold("the one thing", wait_s=60) as held:
        life.acks.note("held", name=held.name, fence=held.fence)
        await session.add("mine, for now")


async def _finish(life: Life, session: Session) -> None:
    await session.close("completed", "all done")
    life.acks.lines(session)


DRIVING: Final[dict[str, tuple[Step, ...]]] = {
    "one": (_talk, _ask, _plan, _run_by_name, _read_mail, _keep_on, _go_back, _share, _finish),
    "two": (_talk, _ask, _read_mail, _keep_on, _share),
    "three": (_talk, _run_by_name, _keep_on, _share, _finish),
}
BRANCHING: Final = (_talk, _go_back)


# -- what is done to sessions -------------------------------------------------------------------------


async def _fork(life: Life, keeper: Session) -> None:
    await life.fork("one", "branch")
    await life.drive("branch", BRANCHING, "branch")
    await life.fork("branch", "twig")


async def _delete_the_middle(life: Life, keeper: Session) -> None:
    """The fork of the fork still needs it."""
    await life.delete("branch")


async def _drive_the_twig(life: Life, keeper: Session) -> None:
    await life.drive("twig", BRANCHING, "branch")


async def _erase(life: Life, keeper: Session) -> None:
    """What was said goes, what was done stays."""
    state = await life.store.load("two")
    uid, upto = state.facts.head.uid, state.seq
    await life.store.clean("two", transcript=True, checkpoints=False, wait_s=60)
    life.acks.note("erased", session="two", uid=uid, upto=upto)


async def _begin_anew(life: Life, keeper: Session) -> None:
    """Delete what forks still need, and give its name to another."""
    state = await life.find("one")
    if state is not None and "reborn" not in state.facts.head.labels:
        await life.delete("one")
    async with life.store.session("one", wait_s=60, labels={"reborn": "yes"}) as session:
        life.acks.lines(session)
        await _talk(life, session)


async def _cut_the_twig(life: Life, keeper: Session) -> None:
    """The last that needed the hidden ones: they go with it."""
    await life.delete("twig")


async def _claim_with_lines(life: Life, keeper: Session) -> None:
    """Lines and claims that land together, by the driver's own commit."""
    for turn in range(2):
        await anyio.to_thread.run_sync(_commit_with_claims, life, turn)


def _commit_with_claims(life: Life, turn: int) -> None:
    """The claims say which entry they came with: `check` looks for both."""
    driver, name, engine = life.driver, LEDGER, engine_of(life.store)
    state = anyio.from_thread.run(life.find, name)
    if state is None:
        anyio.from_thread.run(_make_ledger, life)
        state = anyio.from_thread.run(life.store.load, name)
    after = state.facts.head.sum
    current = driver.find_claim(LEDGER)
    new = state.append(StateSet(key="turn", value=Raw(str(turn).encode())), engine.now())
    seq = new.entry.seq
    item = make_append(
        [new],
        after=after,
        head=state.facts.head,
        claims=(
            ClaimChange(key=LEDGER, expect=current, record=str(seq)),
            ClaimChange(key=f"{LEDGER}-{seq}", expect=None, record="issued"),
        ),
    )
    head = item.head
    outcome = driver.commit([item])
    assert isinstance(outcome[0], Done), outcome
    life.acks.note("lines", session=name, uid=head.uid, seq=head.seq, sum=head.sum)
    life.acks.note("claimed", key=f"{LEDGER}-{head.seq}")


async def _make_ledger(life: Life) -> None:
    async with life.store.session(LEDGER, wait_s=60) as session:
        life.acks.lines(session)


async def _store_a_blob(life: Life, keeper: Session) -> None:
    parts = [BLOB[:500], BLOB[500:]]
    context, owner = BlobContext(media_type="image/png"), life.driver.store_id()
    put = partial(life.driver.blobs.put, BLOB_DIGEST, parts, context, owner=owner)
    await anyio.to_thread.run_sync(put)
    life.acks.note("blob", digest=BLOB_DIGEST)


async def _drop_from_outside(life: Life, keeper: Session) -> None:
    """One version, then all that are left."""
    versions = [one.version async for one in life.store.checkpoints("three")]
    if versions:
        await life.store.drop("three", versions[0], wait_s=60)
    await life.store.clean("three", transcript=False, wait_s=60)


KEEPING: Final = (
    _fork,
    _delete_the_middle,
    _drive_the_twig,
    _erase,
    _begin_anew,
    _cut_the_twig,
    _claim_with_lines,
    _store_a_blob,
    _drop_from_outside,
)

_KEEPER_BEGINS: Final = max(len(steps) for steps in DRIVING.values())
STAGES: Final = _KEEPER_BEGINS + len(KEEPING)

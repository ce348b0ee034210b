"""What is done in the matrix: each scenario can be interrupted anywhere, and gone on with by anybody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from holdfast import Registry
from holdfast.errors import NotFound

from ..crash.fork_server import Line
from .matrix_process import Call, Life, Report, run
from .matrix_tools import TOOLS
from .oracle import count_problems, find_bad_transcripts, find_losses, find_neglected, find_repeats, look

Play: TypeAlias = Callable[[Life], Awaitable[bool]]
End: TypeAlias = Callable[[Life], Awaitable[dict[str, Any]]]
"""Looks at what must be the same in the end, whoever was killed on the way."""
Persona: TypeAlias = Literal["truthful", "gives up", "refuses", "corrects"]
"""What a person does who is asked."""


class Scenario(Struct, frozen=True, kw_only=True):
    """What is done, and what the world looks like afterwards."""

    play: Play
    """Goes on until it is done (True) or a person must say something."""
    effects: Mapping[str, int]
    """How often each thing is meant to happen."""
    perhaps: frozenset[str] = frozenset()
    """Those of them that may happen less often, because nobody finds out what became of them."""
    final: Mapping[str, str] = {}
    """What registers hold in the end."""
    persona: Persona = "truthful"
    end: End | None = None


SCENARIOS: dict[str, Scenario] = {}


def live(line: Line, folder: str, scheme: str, scenario: str, target: Sequence[Any] | None = None) -> Report:
    """In a child: go on with one of these scenarios."""
    return go_on(SCENARIOS[scenario], folder, scheme, target)


def go_on(chosen: Scenario, folder: str, scheme: str, target: Sequence[Any] | None) -> Report:
    """Look at what others left, go on as far as possible, and look again."""

    async def act(life: Life) -> str:
        before, deeds = await look(life.store), life.world.deeds("landed")
        life.problems += [f"at first: {why}" for why in find_losses(before, life.world, life.acks)]
        completed = [key for key in before.rows if before.has(key, "completed", "undone")]
        done = await chosen.play(life)
        after = await look(life.store)
        life.problems += find_losses(after, life.world, life.acks)
        life.problems += find_repeats(completed, deeds, life.world.deeds("landed"))
        life.problems += find_neglected(after)
        if done:
            life.problems += count_problems(life.world, chosen.effects, chosen.final, chosen.perhaps)
            life.problems += await find_bad_transcripts(life.store, may_doubt=bool(chosen.perhaps))
            life.end |= {} if chosen.end is None else await chosen.end(life)
        return "done" if done else "open"

    return run(folder, scheme, target, act)


def calls(*lines: str) -> list[Call]:
    """A reply's calls: `tool argument` each. Ids begin anew with each reply, as with many providers."""
    split = (line.partition(" ") for line in lines)
    return [Call(f"call_{index}", tool, what) for index, (tool, _, what) in enumerate(split)]


def _steps(*steps: Sequence[Call], session: str = "s") -> Play:
    async def play(life: Life) -> bool:
        async with life.store.session(session, wait_s=5) as opened:
            return await life.drive(opened, {f"step {n}": step for n, step in enumerate(steps)})

    return play


# -- one call alone, of every kind --------------------------------------------------------------------

ALONE: Final = (
    "put", "put_once", "charge", "send", "bill", "mail", "order", "plain",
    "remind", "remind_checked", "append", "append_checked", "invoice", "welcome", "greet", "grant",
    "flaky", "flaky_global", "busy", "shaky", "shaky_send", "shaky_bill", "lost_send", "lost_charge",
    "tardy", "tardy_send", "wipe", "wipe_checked",
)  # fmt: skip
for _tool in ALONE:
    SCENARIOS[f"{_tool} alone"] = Scenario(play=_steps(calls(f"{_tool} a=1")), effects={f"{_tool} a=1": 1})
for _tool in ("sum", "look", "broken"):
    SCENARIOS[f"{_tool} alone"] = Scenario(play=_steps(calls(f"{_tool} 1")), effects={})

# -- several ------------------------------------------------------------------------------------------

SCENARIOS["all kinds in one reply"] = Scenario(
    play=_steps(
        calls("sum 1", "look 1", "put a=1", "charge 1", "send 1", "bill 1", "mail 1", "plain 1", "flaky 1"),
        calls("sum 1", "charge 1", "send 1", "look 1"),
    ),
    effects={
        "put a=1": 1, "charge 1": 1, "send 1": 1, "bill 1": 1, "mail 1": 1, "plain 1": 1, "flaky 1": 1,
    },
)  # fmt: skip
SCENARIOS["every scope twice"] = Scenario(
    play=_steps(
        calls("charge 1", "remind_checked 1", "append_checked 1", "invoice 1#a", "welcome 1"),
        calls("charge 1", "remind_checked 1", "append_checked 1", "invoice 1#b", "welcome 1"),
    ),
    effects={
        "charge 1": 1, "remind_checked 1": 1, "append_checked 1": 2, "invoice 1#a": 1, "welcome 1": 1,
    },
)  # fmt: skip
SCENARIOS["one thing twice in one reply"] = Scenario(
    play=_steps(
        calls("send 1", "send 1", "charge 1", "charge 1", "bill 1", "bill 1", "welcome 1", "welcome 1")
    ),
    effects={"send 1": 1, "charge 1": 1, "bill 1": 1, "welcome 1": 1},
)
SCENARIOS["writes in order"] = Scenario(
    play=_steps(
        calls("put a=1", "put a=2", "put a=1", "put a=1", "put b=1"),
        calls("put a=2", "send 1", "put b=1"),
    ),
    effects={"put a=1": 2, "put a=2": 2, "put b=1": 2, "send 1": 1},
    final={"a": "2", "b": "1"},
)
SCENARIOS["a slow write and a quick one"] = Scenario(
    play=_steps(calls("put slow=1", "put slow=2")),
    effects={"put slow=1": 1, "put slow=2": 1},
    final={"slow": "2"},
)
SCENARIOS["writes in order, none of them idempotent"] = Scenario(
    play=_steps(calls("put_once a=1", "put_once a=2", "put_once a=1", "put_once a=1")),
    effects={"put_once a=1": 2, "put_once a=2": 1},
    final={"a": "1"},
)
SCENARIOS["errors of every kind"] = Scenario(
    play=_steps(
        calls("flaky 1", "busy 1", "broken 1", "shaky 1", "shaky_bill 1", "lost_charge 1"),
        calls("shaky 1", "flaky 1", "broken 1"),
    ),
    effects={"flaky 1": 1, "busy 1": 1, "shaky 1": 1, "shaky_bill 1": 1, "lost_charge 1": 1},
)
SCENARIOS["approval among others"] = Scenario(
    play=_steps(calls("wipe 1", "charge 1", "wipe_checked 1", "send 1")),
    effects={"wipe 1": 1, "charge 1": 1, "wipe_checked 1": 1, "send 1": 1},
)
SCENARIOS["approval with a correction"] = Scenario(
    play=_steps(calls("wipe 1", "send 1")), effects={"wipe 2": 1, "send 1": 1}, persona="corrects"
)
SCENARIOS["refusal"] = Scenario(
    play=_steps(calls("wipe 1", "send 1"), calls("send 1")), effects={"send 1": 1}, persona="refuses"
)
SCENARIOS["giving up"] = Scenario(
    play=_steps(calls("send 1", "charge 1", "mail 1"), calls("send 1", "look 1", "charge 1")),
    effects={"send 1": 1, "charge 1": 1, "mail 1": 1},
    perhaps=frozenset({"send 1", "mail 1"}),
    persona="gives up",
)


async def _tell(life: Life) -> bool:
    """The model is told what is in doubt, and goes on."""
    life.registry, life.waits = Registry(TOOLS.values(), in_doubt="tell"), False
    steps = calls("send 1", "charge 1", "shaky_send 1"), calls("send 1", "bill 1"), calls("shaky_send 1")
    return await _steps(*steps)(life)


SCENARIOS["telling the model"] = Scenario(
    play=_tell,
    effects={"send 1": 1, "charge 1": 1, "shaky_send 1": 1, "bill 1": 1},
    perhaps=frozenset({"send 1", "shaky_send 1"}),
)


# -- without a transcript -----------------------------------------------------------------------------

_BARE = (
    Call("c1", "charge", "1"),
    Call("c2", "send", "1"),
    Call("c3", "append", "1"),
    Call("c4", "append", "1"),
    Call("c5", "put", "a=1"),
    Call("c6", "put", "a=2"),
    Call("c7", "put", "a=1"),
    Call("c8", "bill", "1"),
    Call("c9", "charge", "1"),
)


async def _one_by_one(life: Life) -> bool:
    async with life.store.session("s", wait_s=5) as session:
        await session.settle(life.registry)
        for call in _BARE:
            args = {"what": call.what}
            result = await life.registry.dispatch(call.tool, args, call_id=call.id, session=session)
            if not life.take(session, [result]):
                return False
            life.expect_result(call, result)
        await session.flush()
        return True


SCENARIOS["one by one, without a transcript"] = Scenario(
    play=_one_by_one,
    effects={"charge 1": 1, "send 1": 1, "append 1": 2, "put a=1": 2, "put a=2": 1, "bill 1": 1},
    final={"a": "1"},
)


# -- several sessions ---------------------------------------------------------------------------------


def _everybody(*order: str) -> Play:
    """Sessions that all want the same things done, once ever."""
    wanted = calls("welcome 1", "greet 1", "grant 1", "flaky_global 1")

    async def play(life: Life) -> bool:
        return all([await _steps(wanted, session=name)(life) for name in order])

    return play


async def _other_first(life: Life) -> bool:
    """Whoever comes after a crash begins with the other session."""
    begun = [head.session async for head in life.store.sessions()]
    return await _everybody(*(("t", "s") if begun else ("s", "t")))(life)


_ONCE: Final = {"welcome 1": 1, "greet 1": 1, "grant 1": 1, "flaky_global 1": 1}
SCENARIOS["once over all sessions"] = Scenario(play=_everybody("s", "t"), effects=_ONCE)
SCENARIOS["once over all sessions, the other first"] = Scenario(play=_other_first, effects=_ONCE)


async def _fork(life: Life) -> bool:
    """What the origin did before the fork is done; what it did after is left behind."""
    shared = {"look": calls("look 1"), "do": calls("charge 1", "send 1", "append 1")}
    async with life.store.session("s", wait_s=5) as session:
        if not await life.drive(session, {**shared, "more": calls("charge 2", "bill 2")}):
            return False
    try:
        await life.store.load("fork")
    except NotFound:
        await life.store.fork("s", version=2, into="fork")
    async with life.store.session("fork", wait_s=5) as session:
        left = sorted(one.tool for one in session.state.facts.left_behind)
        life.expect(left == ["bill", "charge"], f"left behind: {left}")
        again = calls("charge 1", "send 1", "append 1", "charge 2", "bill 3")
        return await life.drive(session, {**shared, "again": again})


SCENARIOS["fork"] = Scenario(
    play=_fork,
    effects={"charge 1": 1, "send 1": 1, "append 1": 2, "charge 2": 2, "bill 2": 1, "bill 3": 1},
)


# -- going back ---------------------------------------------------------------------------------------


def _back(first: Sequence[Call], second: Sequence[Call], *, undo: bool) -> Play:
    """Do something, go back to before it, and do something else."""
    look_first = {"look": calls("look 1")}

    async def play(life: Life) -> bool:
        async with life.store.session("s", wait_s=5) as session:
            done = {one.name for one in session.checkpoints}
            if "first" not in done or "first" in {one.name for one in session.state.path()}:
                if not await life.drive(session, {**look_first, "first": first}) or session.in_doubt:
                    return False
                await session.rewind(version=1, undo=undo, registry=life.registry)
            return await life.drive(session, {**look_first, "second": second})

    return play


SCENARIOS["rewind"] = Scenario(
    play=_back(
        calls("charge 1", "send 1", "append 1", "bill 1", "welcome 1"),
        calls("charge 1", "send 1", "append 1", "bill 1", "welcome 1", "put a=1"),
        undo=False,
    ),
    effects={"charge 1": 1, "send 1": 1, "append 1": 2, "bill 1": 1, "welcome 1": 1, "put a=1": 1},
)
SCENARIOS["rewind and undo"] = Scenario(
    play=_back(calls("book 1", "reserve 1", "send 1"), calls("book 1", "send 1"), undo=True),
    effects={"book 1": 2, "undo book 1": 1, "reserve 1": 1, "undo reserve 1": 1, "send 1": 1},
)


async def _once_more(life: Life) -> bool:
    """What was done once ever is taken back: then another session may do it."""
    taken_back = _back(calls("enrol 1"), calls("look 1"), undo=True)
    return await taken_back(life) and await _steps(calls("enrol 1"), session="t")(life)


SCENARIOS["undo of what was done once ever"] = Scenario(
    play=_once_more, effects={"enrol 1": 2, "undo enrol 1": 1}
)

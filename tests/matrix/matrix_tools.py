"""Tools of every kind. Each does one thing in the world, with a boundary before and after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from anyio import sleep, sleep_forever
from anyio.lowlevel import checkpoint

from holdfast import Landed, NotDone, NotLanded, ToolContext, tool
from holdfast.tools import Retry, Tool

from ..crash.fork_server import Line
from .boundaries import at
from .effect_log import UNDO, World

AnyTool = Tool[..., Any]
Ctx = ToolContext[Any]

_worlds: list[World] = []
_gates: list[tuple[Line, Path]] = []


def enter(path: Path) -> World:
    """From now on, this is the world that the tools act in."""
    _worlds[:] = [World(path)]
    return _worlds[0]


def world() -> World:
    """The world."""
    return _worlds[0]


def keep_gates(line: Line, folder: Path) -> None:
    """From now on, tools that wait tell the test so, and do until there is a file of the gate's name."""
    _gates[:] = [(line, folder)]


async def _wait_at(gate: str) -> None:
    line, folder = _gates[0]
    line.say(gate)
    while not (folder / gate).exists():  # noqa: ASYNC110
        await sleep(0.002)


SLOW: Final = "slow=1"
"""What takes so long that anything beside it would be done first."""

_QUICK: Final = Retry(attempts=2, backoff_s=0.001)
TOOLS: dict[str, AnyTool] = {}


def _verify(name: str, *, final: bool = False) -> Callable[..., Any]:
    async def verify(ctx: Ctx, what: str) -> Landed | NotLanded:
        at(f"{name}: verify is asked")
        found = world().void(ctx, name, what) if final else world().find(ctx.key)
        await checkpoint()
        at(f"{name}: verify answers")
        return Landed(found.result) if found is not None else NotLanded(final=final)

    return verify


def _undo(name: str) -> Callable[..., Any]:
    async def undo(ctx: Ctx, what: str) -> str:
        at(f"{name}: before it is undone")
        assert ctx.result == f"{name} {what}", ctx.result
        deed = world().land(ctx, UNDO + name, what)
        await checkpoint()
        at(f"{name}: after it was undone")
        return deed.result

    return undo


def _add(
    name: str,
    *,
    raises: Callable[[Ctx], Exception | None] = lambda ctx: None,
    refuses: Callable[[Ctx], Exception | None] = lambda ctx: None,
    verify: bool = False,
    undo: bool = False,
    final: bool = False,
    guarded: bool = False,
    hangs: bool = False,
    **options: Any,
) -> None:
    """A tool that lands in the world. It raises what `refuses` says before, and what `raises` says after, or
    never comes back (`hangs`)."""

    async def body(ctx: Ctx, what: str) -> str:
        at(f"{name}: before")
        for _ in range(20 if what == SLOW else 1):
            await checkpoint()
        if (error := refuses(ctx)) is not None:
            raise error
        deed = world().land(ctx, name, what, guarded=guarded)
        await checkpoint()
        at(f"{name}: after")
        if hangs:
            await sleep_forever()
        if (error := raises(ctx)) is not None:
            raise error
        return deed.result

    options.setdefault("side_effects", {"mutate"})
    TOOLS[name] = tool(
        name=name,
        verify=_verify(name, final=final) if verify else None,
        undo=_undo(name) if undo else None,
        **options,
    )(body)


def _broken_off(ctx: Ctx) -> Exception:
    return ConnectionError("the connection broke before the answer came")


def _at_first(error: Exception) -> Callable[[Ctx], Exception | None]:
    return lambda ctx: error if ctx.attempt == 1 else None


# Nothing happens: the world only sees that they ran.
@tool(name="sum", side_effects=())
async def _sum(ctx: Ctx, what: str) -> str:
    at("sum: before")
    return world().land(ctx, "sum", what, what="ran").result


@tool(name="look", side_effects={"read"})
async def _look(ctx: Ctx, what: str) -> str:
    at("look: before")
    return world().land(ctx, "look", what, what="ran").result


TOOLS |= {"sum": _sum, "look": _look}

_add("put", side_effects={"write"})
_add("put_once", side_effects={"write"}, idempotent=False)
_add("charge", verify=True)
_add("send")
_add("bill", idempotent=True)

_add("remind", scope="run")
_add("remind_checked", scope="run", verify=True)
_add("append", scope="call")
_add("append_checked", scope="call", verify=True)
_add("invoice", scope=lambda what: what.partition("#")[0], verify=True)
_add("welcome", scope="global", verify=True)
_add("greet", scope="global")
_add("grant", scope="global", idempotent=True)

_add("flaky", refuses=_at_first(NotDone("not yet")), retry=_QUICK)
_add("flaky_global", refuses=_at_first(NotDone("not yet")), retry=_QUICK, scope="global")
_add("busy", refuses=_at_first(BlockingIOError("busy")), retry=_QUICK, harmless=[BlockingIOError])
_add("broken", refuses=lambda ctx: NotDone("never"), retry=_QUICK)
_add("shaky", raises=_broken_off, verify=True)
_add("shaky_send", raises=_broken_off)
_add("shaky_bill", raises=_at_first(ConnectionError("broke")), idempotent=True, retry=_QUICK)
_add("lost_send", refuses=_at_first(ConnectionError("broke")))
_add("lost_charge", refuses=_at_first(ConnectionError("broke")), verify=True, retry=_QUICK)

_add("tardy", hangs=True, verify=True, timeout_s=0.03)
_add("tardy_send", hangs=True, timeout_s=0.03)

_add("wipe", needs_approval=True)
_add("wipe_checked", needs_approval=True, verify=True)
_add("book", undo=True, verify=True)
_add("reserve", undo=True)
_add("enrol", undo=True, verify=True, scope="global")

_add("guarded", verify=True, guarded=True, timeout_s=1.5)
_add("careless", verify=True, timeout_s=1.5)
_add("voiding", verify=True, final=True, guarded=True, timeout_s=60.0)


@tool(name="mail", side_effects={"mutate"})
def _mail(ctx: Ctx, what: str) -> str:
    """A sync body, without any way to find out."""
    at("mail: before")
    deed = world().land(ctx, "mail", what)
    at("mail: after")
    return deed.result


async def _was_ordered(ctx: Ctx, what: str) -> Landed | NotLanded:
    """The vendor knows its own number only: it must have been noted before."""
    at("order: verify is asked")
    found = world().find(ctx.key)
    assert found is None or ctx.notes.get("vendor") == f"vendor's {what}", ctx.notes
    return Landed(found.result) if found is not None else NotLanded()


@tool(name="order", side_effects={"mutate"}, verify=_was_ordered)
def _order(ctx: Ctx, what: str) -> str:
    """A sync body that notes something about its effect first."""
    at("order: before")
    ctx.annotate(vendor=f"vendor's {what}")
    at("order: noted")
    deed = world().land(ctx, "order", what)
    at("order: after")
    return deed.result


@tool
async def plain(ctx: Ctx, what: str) -> str:
    """Declares nothing, so the worst is assumed."""
    at("plain: before")
    deed = world().land(ctx, "plain", what)
    at("plain: after")
    return deed.result


@tool(name="gate", side_effects={"mutate"})
async def _gate(ctx: Ctx, what: str) -> str:
    """Ends when the test says so."""
    await _wait_at("gate")
    at("gate: open")
    return world().land(ctx, "gate", what).result


@tool(name="carve", side_effects={"write"})
async def _carve(ctx: Ctx, what: str) -> str:
    """Ends when the test says so; others of its kind come one after another."""
    await _wait_at("carve")
    return world().land(ctx, "carve", what).result


async def _ask_slowly(ctx: Ctx, what: str) -> NotLanded:
    """Looks at once, and is believed much later."""
    await _wait_at("verify")
    at("doubted: verify answers")
    return NotLanded()


@tool(name="doubted", side_effects={"mutate"}, verify=_ask_slowly, retry=_QUICK)
async def _doubted(ctx: Ctx, what: str) -> str:
    world().land(ctx, "doubted", what)
    raise _broken_off(ctx)


@tool(name="picky", side_effects={"mutate"}, scope="global")
async def _picky(ctx: Ctx, what: str) -> str:
    """Does nothing for one session, surely, and its duty for all others."""
    if ctx.session.id == "s":
        world().land(ctx, "picky", what, what="ran")
        raise NotDone("not for you")
    return world().land(ctx, "picky", what).result


@tool(name="pay", side_effects={"mutate"}, verify=_verify("pay"))
async def _pay(ctx: Ctx, what: str) -> str:
    """Never comes back the first time, and has done nothing by then."""
    world().land(ctx, "pay", what, what="ran")
    if ctx.attempt == 1:
        await sleep_forever()
    at("pay: before")
    deed = world().land(ctx, "pay", what)
    await checkpoint()
    at("pay: after")
    return deed.result


TOOLS |= {
    "mail": _mail, "order": _order, "plain": plain, "gate": _gate, "carve": _carve, "doubted": _doubted,
    "picky": _picky, "pay": _pay,
}  # fmt: skip

IDEMPOTENT: Final = frozenset(name for name, one in TOOLS.items() if one.idempotent_s is not None)
"""May land several times, each time with the same key."""

VERIFIED: Final = frozenset(name for name, one in TOOLS.items() if one.verify is not None)

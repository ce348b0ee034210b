"""Agents that a crash test kills: without holdfast, with it, and with mistakes in how they use it."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import holdfast
from holdfast.agents import ScriptedModel
from holdfast.crash_test import CrashWorld, HttpWorld
from holdfast.messages import Message, ToolCall, ToolResult

ORDERS = ("41", "42")
Context = holdfast.ToolContext[HttpWorld]


def post(world: HttpWorld, path: str, body: dict[str, Any], key: str = "") -> None:
    """Change something at the service."""
    headers = {"Idempotency-Key": key} if key else {}
    request = urllib.request.Request(world.url + path, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request) as answer:
        answer.read()


def was_posted(world: HttpWorld, path: str, key: str) -> bool:
    """Ask the service for a key."""
    with urllib.request.urlopen(world.url + path) as answer:
        return any(one["key"] == key for one in json.load(answer))


def plain_loop(world: HttpWorld) -> list[str]:
    """A loop that notes what it has done right after it did it, which is too late."""
    notes = world.agent_dir / "done.json"
    done: list[str] = json.loads(notes.read_text()) if notes.exists() else []
    for order in ORDERS:
        if order not in done:
            post(world, "/refunds", {"order": order})
            done.append(order)
            notes.write_text(json.dumps(done))
    return done


# -- with holdfast ---------------------------------------------------------------------------------------


def was_refunded(ctx: Context, order: str) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the service by the key of the effect."""
    return holdfast.Landed(order) if was_posted(ctx.deps, "/refunds", ctx.key) else holdfast.NotLanded()


@holdfast.tool(side_effects="mutate", verify=was_refunded)
def refund(ctx: Context, order: str) -> str:
    """Give the money back."""
    post(ctx.deps, "/refunds", {"order": order}, ctx.key)
    return order


@holdfast.tool(name="refund", side_effects="mutate")
def unverified_refund(ctx: Context, order: str) -> str:
    """Give the money back; no one can be asked whether it happened."""
    post(ctx.deps, "/refunds", {"order": order}, ctx.key)
    return order


def call(number: int, tool: str, order: str) -> ToolCall:
    """A call of a model."""
    return ToolCall(id=f"call_{number}", name=tool, args={"order": order})


PARALLEL = [[call(0, "refund", "41"), call(1, "refund", "42")], "All is refunded."]
ONE = [call(0, "refund", "42"), "It is refunded."]


async def drive(world: CrashWorld, script: list[Any], *tools: Any) -> Any:
    """Run an agent, or go on with its run: the key of the message says that it is the same one."""
    agent = holdfast.Agent(ScriptedModel(script), tools=list(tools))
    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        outcome = await agent.run("Refund them", session="orders", key="orders", store=store, deps=world)
        return outcome.output


async def durable(world: HttpWorld) -> Any:
    """An agent whose tool can be asked."""
    return await drive(world, PARALLEL, refund)


async def long_durable(world: HttpWorld) -> Any:
    """Ten steps, nine of them with five calls that run in parallel."""
    steps = [[call(one, "refund", f"{step}-{one}") for one in range(5)] for step in range(9)]
    return await drive(world, [*steps, "All is refunded."], refund)


async def unverified(world: HttpWorld) -> Any:
    """An agent whose tool cannot be asked: a person must."""
    return await drive(world, ONE, unverified_refund)


async def unverified_pair(world: HttpWorld) -> Any:
    """The same with two calls in parallel."""
    return await drive(world, PARALLEL, unverified_refund)


# -- mistakes --------------------------------------------------------------------------------------------


@holdfast.tool(name="refund", side_effects="read")
def refund_as_read(ctx: Context, order: str) -> str:
    """Declared as a tool that only reads."""
    post(ctx.deps, "/refunds", {"order": order})
    return order


async def read_that_writes(world: HttpWorld) -> Any:
    """A read declared that writes."""
    return await drive(world, ONE, refund_as_read)


def never(ctx: Context, order: str) -> holdfast.NotLanded:
    """A lie."""
    return holdfast.NotLanded()


def always(ctx: Context, order: str) -> holdfast.Landed:
    """Another one."""
    return holdfast.Landed(order)


async def verify_says_never(world: HttpWorld) -> Any:
    """A verify hook that finds nothing."""
    lying = holdfast.tool(name="refund", side_effects="mutate", verify=never)(refund.function)
    return await drive(world, ONE, lying)


async def verify_says_always(world: HttpWorld) -> Any:
    """A verify hook that finds everything."""
    lying = holdfast.tool(name="refund", side_effects="mutate", verify=always)(refund.function)
    return await drive(world, ONE, lying)


async def effect_before_intent(world: HttpWorld) -> str:
    """An own loop that makes the effect itself, and then adds the result to the session."""
    async with (
        holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store,
        store.session("orders", wait_s=60) as session,
    ):
        if not session.transcript:
            await session.add("Refund it")
            await session.flush()
        if len(session.transcript) == 1:
            await session.add(Message(role="assistant", blocks=(call(0, "refund", "42"),)))
            await session.flush()
        if not session.continuable:
            post(world, "/refunds", {"order": "42"})
            await session.add(Message(role="tool", blocks=(ToolResult(call_id="call_0", content="ok"),)))
            await session.checkpoint()
    return "done"


class Basket:
    """State that is only in memory."""

    def __init__(self, world: HttpWorld) -> None:
        self.world = world
        self.orders: list[str] = []


@holdfast.tool(side_effects=())
def collect(ctx: holdfast.ToolContext[Basket], order: str) -> str:
    """Remember an order, in memory."""
    ctx.deps.orders.append(order)
    return order


def was_basket_refunded(
    ctx: holdfast.ToolContext[Basket], order: str
) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the service."""
    found = was_posted(ctx.deps.world, "/refunds", ctx.key)
    return holdfast.Landed(order) if found else holdfast.NotLanded()


@holdfast.tool(name="refund", side_effects="mutate", verify=was_basket_refunded)
def refund_basket(ctx: holdfast.ToolContext[Basket], order: str) -> str:
    """Refund what was remembered."""
    post(ctx.deps.world, "/refunds", {"orders": ctx.deps.orders}, ctx.key)
    return order


async def state_in_memory(world: HttpWorld) -> Any:
    """State kept outside of the session."""
    calls = [call(0, "collect", "41"), call(1, "collect", "42"), call(2, "refund", "all")]
    script: list[ToolCall | str] = [*calls, "done"]
    agent = holdfast.Agent(ScriptedModel(script), tools=[collect, refund_basket])
    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        deps = Basket(world)
        outcome = await agent.run("Refund them", session="orders", key="orders", store=store, deps=deps)
        return outcome.output


@holdfast.tool(name="refund", side_effects="mutate", verify=was_refunded)
def refund_now(ctx: Context, order: str) -> str:
    """Depends on the time."""
    post(ctx.deps, "/refunds", {"order": order, "at": time.time_ns()}, ctx.key)
    return order


async def tool_of_time(world: HttpWorld) -> Any:
    """A tool that depends on the time."""
    return await drive(world, ONE, refund_now)


def hangs_when_resumed(world: CrashWorld) -> None:
    """Waits for a lock file of a process that is dead."""
    lock = world.agent_dir / "lock"
    while lock.exists():
        time.sleep(1)
    lock.touch()
    (world.agent_dir / "work").touch()
    lock.unlink()

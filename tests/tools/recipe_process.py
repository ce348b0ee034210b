"""A process whose tool acts in the world. It is killed by tests just before it acts, or just after."""

from __future__ import annotations

from typing import Any

import anyio

import holdfast
from holdfast import Registry, ToolContext, tool
from tests.crash.fork_server import Line
from tests.tools.example_tools import call, reply
from tests.tools.recipe_worlds import WORLDS


def make_registry(kind: str, place: str, line: Line | None, moment: str) -> Registry:
    """With one tool. With a line, it stops at the moment for good."""
    world = WORLDS[kind](place)

    def stop_at(reached: str) -> None:
        if line is not None and moment == reached:
            line.say(reached)
            line.wait_for_the_end()

    @tool(side_effects="mutate", verify=world.hook())
    def act(ctx: ToolContext[Any], what: str) -> str:
        stop_at("before")
        done = world.act(ctx, what)
        stop_at("after")
        return done

    return Registry([act])


def work(line: Line, store_url: str, kind: str, place: str, moment: str) -> None:
    """Act as a model asks for it."""
    anyio.run(_work, store_url, make_registry(kind, place, line, moment))


async def _work(store_url: str, registry: Registry) -> None:
    async with holdfast.open_store(store_url) as store, store.session("s") as session:
        await reply(session, call("act", {"what": "tea"}))
        await registry.dispatch_step(session)


def resume(line: Line, store_url: str, kind: str, place: str) -> list[tuple[str, str]]:
    """Go on after the kill; the status and text of each result."""
    return anyio.run(_resume, store_url, make_registry(kind, place, None, ""))


async def _resume(store_url: str, registry: Registry) -> list[tuple[str, str]]:
    async with holdfast.open_store(store_url) as store, store.session("s") as session:
        await session.settle(registry)
        return [(result.status, result.content) for result in await registry.dispatch_step(session)]

"""A process whose tool makes a request to a service. It is killed by tests before it has the answer."""

from __future__ import annotations

from typing import Any

import anyio
import httpx

import holdfast
from holdfast import Landed, NotLanded, Registry, ToolContext
from tests.crash.fork_server import Line
from tests.tools.example_tools import call, reply
from tests.tools.http_services import TIMEOUT_S, make_tool


def ask_service(ctx: ToolContext[Any]) -> Landed | NotLanded:
    """A verify hook that asks the service about the request that had no answer."""
    (request,) = ctx.notes["requests"]
    address = request["url"].rpartition("/")[0]
    with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client:
        found = client.get(f"{address}/keys?{request['key']}")
    return Landed("paid") if found.status_code == 200 else NotLanded()


def make_registry(kind: str, url: str, how: str) -> Registry:
    """With one tool, which pays at the service."""
    options: dict[str, Any] = {"idempotent": {"idempotent": True}, "verify": {"verify": ask_service}}
    return Registry([make_tool(kind, ("POST", url), **options.get(how, {}))])


def pay(line: Line, store_url: str, kind: str, url: str, how: str) -> None:
    """Pay once, as a model asks for it."""
    anyio.run(_pay, store_url, make_registry(kind, url, how))


async def _pay(store_url: str, registry: Registry) -> None:
    async with holdfast.open_store(store_url) as store, store.session("s") as session:
        await reply(session, call("act"))
        await registry.dispatch_step(session)


def resume(line: Line, store_url: str, kind: str, url: str, how: str) -> list[str]:
    """Go on after the kill; the statuses of the results."""
    return anyio.run(_resume, store_url, make_registry(kind, url, how))


async def _resume(store_url: str, registry: Registry) -> list[str]:
    async with holdfast.open_store(store_url) as store, store.session("s") as session:
        await session.settle(registry)
        return [result.status for result in await registry.dispatch_step(session)]

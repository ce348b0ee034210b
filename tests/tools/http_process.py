"""A process whose tool makes a request to a service. It is killed by tests before it has the answer."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
import httpx

import holdfast
from holdfast import Landed, NotLanded, Registry, ToolContext, tool
from tests.crash.fork_server import Line
from tests.tools.example_tools import call, reply
from tests.tools.http_services import TIMEOUT_S, make_body


def ask_service(ctx: ToolContext[Any]) -> Landed | NotLanded:
    """A verify hook that asks the service about the request that had no answer."""
    (request,) = ctx.notes["requests"]
    address = request["url"].rpartition("/")[0]
    with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client:
        found = client.get(f"{address}/keys?{request['key']}")
    return Landed("paid") if found.status_code == 200 else NotLanded()


def make_registry(kind: str, url: str, how: str, *, dies: bool = False) -> Registry:
    """With one tool, which pays at the service. `dies`: it kills its process when there is no answer."""
    options: dict[str, Any] = {"idempotent": {"idempotent": True}, "verify": {"verify": ask_service}}
    body = make_body(kind, ("POST", url))
    declare = tool(name="act", side_effects={"mutate"}, **options.get(how, {}))
    return Registry([declare(_dying(body) if dies else body)])


def _dying(body: Callable[[], Any]) -> Callable[[], Any]:
    if inspect.iscoroutinefunction(body):

        async def act_async() -> Any:
            try:
                return await body()
            except Exception:
                _die()

        return act_async

    def act() -> Any:
        try:
            return body()
        except Exception:
            _die()

    return act


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is killed")


def pay(line: Line, store_url: str, kind: str, url: str, how: str, *, dies: bool = False) -> None:
    """Pay once, as a model asks for it."""
    anyio.run(_pay, store_url, make_registry(kind, url, how, dies=dies))


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

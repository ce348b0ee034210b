"""Scenarios without holdfast: operations that run in parallel, and resumptions that never end."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import anyio

from holdfast.crash_test import DirectoryWorld, HttpWorld

from .own_agents import post


def list_orders(world: HttpWorld) -> list[str]:
    """The orders, in the order in which the threads and tasks of this run come along."""
    with urllib.request.urlopen(world.url + "/orders") as answer:
        found: list[str] = json.load(answer)
    return found


def refund_in_threads(world: HttpWorld) -> None:
    """One after the other, so that it is known which comes first; the plugin cannot know that."""
    for order in list_orders(world):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(post, world, "/refunds", {"order": order}).result()


async def refund_in_tasks(world: HttpWorld) -> None:
    """In tasks of their own, as `gather` starts them."""

    async def refund(order: str) -> None:
        post(world, "/refunds", {"order": order})

    for order in list_orders(world):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refund, order)


def refund_one_after_the_other(world: HttpWorld) -> None:
    """In the order in which they came."""
    for order in list_orders(world):
        post(world, "/refunds", {"order": order})


def post_with_httpx(world: HttpWorld) -> None:
    """Imports its client when it is needed."""
    import httpx

    httpx.post(f"{world.url}/refunds", json={"order": "42"}).raise_for_status()


async def post_with_async_httpx(world: HttpWorld) -> None:
    """The same in an event loop."""
    import httpx

    async with httpx.AsyncClient() as client:
        await client.post(f"{world.url}/refunds", json={"order": "42"})


def post_with_a_socket(world: HttpWorld) -> None:
    """A client that nothing knows of."""
    host, _, port = world.url.partition("//")[2].partition(":")
    with socket.create_connection((host, int(port))) as service:
        service.sendall(b"POST /refunds HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n42")
        while service.recv(1000):
            pass


def writes_in_circles(world: DirectoryWorld) -> None:
    """Resumed, it waits for its own end, and notes each look at it."""
    begun = world.agent_dir / "begun"
    while begun.exists():
        (world.agent_dir / "looked").write_text("not yet")
    begun.touch()
    (world.path / "work").write_text("done")
    os.unlink(begun)


def asks_in_circles(world: HttpWorld) -> None:
    """Resumed, it asks the service again and again for what it does not do."""
    begun = world.agent_dir / "begun"
    while begun.exists():
        urllib.request.urlopen(world.url + "/refunds").close()
    begun.touch()
    post(world, "/refunds", {"order": "42"})
    os.unlink(begun)

"""A process with a sync tool that never comes back. Run by tests: `hung_process.py STORE LOOP`."""

from __future__ import annotations

import sys
import threading

import anyio

import holdfast
import holdfast.blocking
from holdfast import Registry, tool
from holdfast.system import aio


@tool(side_effects={"mutate"})
def act() -> None:
    """Never comes back."""
    print("began", flush=True)
    threading.Event().wait()


def keep_waking() -> None:
    """Wake the event loop often: asyncio's notices a signal only then.

    Python remembers a signal that comes just before the main thread waits for the next event, but that wait
    goes on. That moment is short, but it is the one in which the tool of this process begins.
    """
    aio.call_later(0.05, keep_waking)


async def main(url: str, registry: Registry) -> None:
    keep_waking()
    async with holdfast.open_store(url) as store, store.session("s") as session:
        await registry.dispatch("act", {}, call_id="c", session=session)


def main_blocking(url: str) -> None:
    registry = holdfast.blocking.Registry([act], grace_s=0.1)
    with holdfast.blocking.open_store(url) as store, store.session("s") as session:
        registry.dispatch("act", {}, call_id="c", session=session)


if __name__ == "__main__":
    _, url, loop = sys.argv
    if loop == "blocking":
        main_blocking(url)
    else:
        anyio.run(main, url, Registry([act], grace_s=0.1), backend=loop)

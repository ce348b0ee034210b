"""Show notifiers on the command line, and stop them on signals (`notify`)."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from msgspec.structs import replace

from ..errors import LeaseHeld
from ..store.store import Store
from ..system.clock import utc_now
from ..workers.notifier import RETRY, Notifier
from .console import print_line, print_text, say
from .exit_codes import Exit, Stop
from .formatting import clock
from .notification import NotificationChannel, make_sender, name_notifier
from .options import Common


async def show_notifiers(
    store: Store,
    channels: Sequence[NotificationChannel],
    *,
    ui: str | None,
    name: str | None,
    once: bool,
    attempts: int,
    common: Common,
) -> int:
    """Tell through all channels until it is stopped, or once; return the exit code."""
    store_id = await store._engine.call(store._engine.driver.store_id)
    notifiers: list[Notifier] = []
    for channel in channels:
        send = make_sender(
            channel,
            store_options=common.explicit_options,
            ui=ui,
            on_sent=partial(_show, to=channel.name, json=common.json),
        )
        shared = name_notifier(channel, name, store_id)
        notifiers.append(Notifier(store, send, name=shared, retry=replace(RETRY, attempts=attempts)))
    if not once:
        say(f"tells {', '.join(channel.name for channel in channels)} what waits for a person")
    held: list[LeaseHeld] = []

    async def tell(notifier: Notifier) -> None:
        try:
            await notifier.run(once=once)
        except LeaseHeld as error:
            held.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signals, notifiers, tasks.cancel_scope)
        async with anyio.create_task_group() as telling:
            for notifier in notifiers:
                telling.start_soon(tell, notifier)
        tasks.cancel_scope.cancel()
    untold = sum(notifier.untold for notifier in notifiers) if once else 0
    if untold:
        raise Stop(
            Exit.ERROR, f"{untold} of the calls that wait could not be told; the next start tries again"
        )
    if held:
        raise Stop(Exit.HELD, f"{held[0].holder} tells already what waits, and goes on")
    return Exit.DONE


async def _stop_on_signals(notifiers: Sequence[Notifier], scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        is_stopping = False
        async for _ in signals:
            if is_stopping:
                scope.cancel()
            for notifier in notifiers:
                notifier.stop()
            is_stopping = True


def _show(notification: dict[str, Any], *, to: str, json: bool) -> None:
    now = utc_now()
    with suppress(BrokenPipeError):  # The person was told all the same.
        if json:
            print_line({"at": now, "to": to, **notification})
        else:
            text = notification["text"].partition("\n")[0]
            print_text(f"{clock(now, now)} told {to}: {text}")

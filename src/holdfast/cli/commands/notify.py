"""`holdfast notify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common

if TYPE_CHECKING:
    from ...store.store import Store


def notify(
    *,
    webhook: Annotated[str | None, Parameter(env_var="HOLDFAST_WEBHOOK")] = None,
    command: str | None = None,
    ui: str | None = None,
    name: str | None = None,
    once: bool = False,
    attempts: int = 5,
    common: Common = DEFAULTS,
) -> int:
    """Tell of every call that waits for a person, until it is stopped.

    Each approval and each call in doubt of the store is told once, with its tool, session and arguments,
    since when it waits, and the commands that answer it. A notification that cannot be delivered is tried
    again, with growing pauses. What was told is on record in the store: after a crash, a notification may
    come twice, and none is lost. What looks like a secret is left out. Start it twice, and the second one
    takes over when the first one ends.

    Parameters
    ----------
    webhook
        An address that gets a POST with JSON for each call. HOLDFAST_WEBHOOK keeps it out of process
        listings.
    command
        A program that is started for each call. It gets the JSON on stdin, and a text in HOLDFAST_TEXT.
    ui
        The address of a viewer (holdfast ui), for a link in each notification.
    name
        Processes with the same name tell each call once among them; by default, those with the same webhook
        or command.
    once
        Tell what waits now, and end. The exit code is 1 if a call could not be told.
    attempts
        How often to try that with --once; 5 by default, within about 15 seconds.
    """
    from ..exit_codes import Exit, Stop
    from ..notification import Command, NotificationChannel, Webhook
    from ..notify_display import show_notifiers
    from ..store_access import with_store

    channels: list[NotificationChannel] = []
    if webhook is not None:
        channels.append(Webhook(webhook))
    if command is not None:
        channels.append(Command(command))
    if not channels:
        raise Stop(Exit.USAGE, "say where to tell: --webhook URL or --command PROGRAM")

    async def work(store: Store) -> int:
        return await show_notifiers(
            store, channels, ui=ui, name=name, once=once, attempts=attempts, common=common
        )

    return with_store(common, work)

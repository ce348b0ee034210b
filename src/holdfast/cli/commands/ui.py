"""`holdfast ui`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common

if TYPE_CHECKING:
    from ...store.store import Store


def _reject_no_port(type_: object, value: object) -> None:
    if isinstance(value, int) and not 0 <= value <= 65535:
        raise ValueError("A port is a number from 0 to 65535.")


def ui(
    *,
    port: Annotated[int | None, Parameter(validator=_reject_no_port)] = None,
    host: str = "127.0.0.1",
    no_open: bool = False,
    allow_changes: bool = False,
    read_only: bool = False,
    allow_host: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    root_path: str = "",
    common: Common = DEFAULTS,
) -> int:
    """Show the store in a browser, and answer what waits there.

    Prints the address, which holds a token: only a browser that was given it gets in. It ends with Ctrl-C.
    Sessions can be looked at while other processes work on them. Answers are recorded with your login name.
    Needs the extra `viewer`.

    Parameters
    ----------
    port
        The port to listen on; by default 7465, or a free one if that is taken. 0 takes a free one.
    host
        The address to listen on; by default this machine only. With another one, every machine that reaches
        it can try: put a proxy with TLS in front, because the connection is not encrypted.
    no_open
        Do not open a browser.
    allow_changes
        Let visitors fork and rewind sessions, too.
    read_only
        Write nothing to the store: no answers, no leases, not even a new schema.
    allow_host
        Another name by which browsers reach it, such as that of a proxy; may be given several times.
    root_path
        The part of the path that a proxy takes off.
    """
    from ..exit_codes import Exit, Stop
    from ..store_access import with_store
    from ..viewer_display import show_viewer

    if read_only and allow_changes:
        raise Stop(Exit.USAGE, "--read-only and --allow-changes exclude each other")

    async def work(store: Store) -> int:
        return await show_viewer(
            store,
            common,
            host=host,
            port=port,
            open_browser=not no_open,
            allow_changes=allow_changes,
            read_only=read_only,
            names=allow_host,
            root_path=root_path,
        )

    return with_store(common, work, read_only=read_only)

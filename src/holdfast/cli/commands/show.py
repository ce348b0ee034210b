"""`holdfast show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common, Number, SessionArg

if TYPE_CHECKING:
    from ...store.store import Store


def show(
    session: SessionArg,
    /,
    *,
    last: Annotated[Number | None, Parameter(name=["--last", "-n"])] = None,
    brief: bool = False,
    html: Annotated[Path | None, Parameter(name="--html")] = None,
    common: Common = DEFAULTS,
) -> None:
    """Show a session: its holders, what happened in each step, and where a process was killed.

    The timeline has the durations of model requests and tool calls, the cost of each step, and the status of
    every call: completed, replayed, refused, failed, in doubt. A holder that died without releasing its lease
    is marked at its last entry, with what was unfinished; a later run says which one it continues. Below the
    timeline are the versions to go back to, and the tree of runs and delegates.

    Parameters
    ----------
    last
        Only this many of the latest rows of the timeline.
    brief
        Without the timeline; with --json, also without leases and steps. Quick, however long the session is.
    html
        Write a page to this file instead, for browsers: the timeline drawn, the transcript, the effects. It
        loads nothing and runs no script. An existing file is not overwritten.
    """
    from ..exit_codes import Exit, Stop
    from ..store_access import with_store

    if html is not None:
        if common.json or last is not None or brief:
            raise Stop(Exit.USAGE, "--html writes a page of its own: leave out --json, --last and --brief")
        if html.exists():
            raise Stop(Exit.USAGE, f"{html} exists already; name a file that does not")
        with_store(common, lambda store: _write_page(store, session, html))
    else:
        with_store(common, lambda store: _show(store, session, last, brief, common))


async def _show(store: Store, session: str, last: int | None, brief: bool, common: Common) -> None:
    from ..console import print_json, stdout
    from ..session_report import print_report, read_report, shape_report
    from ..store_access import get_head

    head = await get_head(store, session)
    report = await read_report(store, head, brief=brief)
    if last is not None and report.timeline is not None:
        report.timeline.moments[:] = report.timeline.moments[-last:] if last > 0 else []
    if common.json:
        print_json(shape_report(report))
    else:
        print_report(stdout(), report)


async def _write_page(store: Store, session: str, file: Path) -> None:
    from ..console import say
    from ..html_page import make_page, read_page_data
    from ..store_access import get_head

    page = make_page(await read_page_data(store, await get_head(store, session)))
    # Exclusively: another process may have created it meanwhile.
    with file.open("x", encoding="utf-8") as opened:
        opened.write(page)
    say(f"wrote {file}")

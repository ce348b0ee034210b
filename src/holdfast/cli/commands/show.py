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
    everything: Annotated[bool, Parameter(name=["--all", "-a"])] = False,
    brief: bool = False,
    html: Annotated[Path | None, Parameter(name="--html")] = None,
    common: Common = DEFAULTS,
) -> None:
    """Show a session: what happened in each step, what became of each call, and where a process was killed.

    Times are counted from the session's beginning. Each call has one line, with its outcome: completed,
    replayed, refused, failed, in doubt, or several in turn. A holder that died without releasing its lease is
    marked at its last entry, with what was unfinished. Below the timeline are the versions, if it was rewound
    or one of them cannot be continued, and the tree of runs and delegates, if there are several.

    A thread of LangGraph is named by its thread id, and shown as its checkpoints.

    Parameters
    ----------
    last
        Only this many of the latest rows of the timeline.
    everything
        Every entry on a line of its own, with the time of day: leases, runs, checkpoints.
    brief
        Without the timeline; with --json, also without leases and steps. Quick, however long the session is.
    html
        Write a page to this file instead, for browsers: the timeline drawn, the transcript, the effects. It
        loads nothing and runs no script. An existing file is not overwritten.
    """
    from ..exit_codes import Exit, Stop
    from ..store_access import with_store

    if html is not None:
        if common.json or last is not None or brief or everything:
            raise Stop(
                Exit.USAGE, "--html writes a page of its own: leave out --json, --last, --all and --brief"
            )
        if html.exists():
            raise Stop(Exit.USAGE, f"{html} exists already; name a file that does not")
        with_store(common, lambda store: _write_page(store, session, html, common))
    else:
        with_store(common, lambda store: _show(store, session, last, everything, brief, common))


async def _show(
    store: Store, session: str, last: int | None, everything: bool, brief: bool, common: Common
) -> None:
    from ..console import print_json, stdout
    from ..session_report import print_report, read_report, shape_report
    from ..store_access import get_head, get_thread
    from ..thread_report import print_thread, read_thread, shape_thread

    heads = await get_thread(store, session)
    if heads:
        thread = await read_thread(store, heads)
        if common.json:
            print_json(shape_thread(thread))
        else:
            print_thread(stdout(), thread, common, last=last, everything=everything, brief=brief)
        return
    head = await get_head(store, session)
    report = await read_report(store, head, brief=brief)
    if last is not None and report.timeline is not None and (everything or common.json):
        report.timeline.moments[:] = report.timeline.moments[-last:] if last > 0 else []
    if common.json:
        print_json(shape_report(report))
    else:
        print_report(stdout(), report, common, last=last, everything=everything)


async def _write_page(store: Store, session: str, file: Path, common: Common) -> None:
    from ..console import say
    from ..html_page import make_page, read_page_data
    from ..store_access import get_head, get_thread
    from ..thread_page import make_thread_page, read_thread_page

    heads = await get_thread(store, session)
    if heads:
        page = make_thread_page(await read_thread_page(store, heads, common))
    else:
        page = make_page(await read_page_data(store, await get_head(store, session), common))
    # Exclusively: another process may have created it meanwhile.
    with file.open("x", encoding="utf-8") as opened:
        opened.write(page)
    say(f"wrote {file}")

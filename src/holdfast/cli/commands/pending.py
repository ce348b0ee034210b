"""`holdfast pending`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..options import DEFAULTS, Common, OptionalSession

if TYPE_CHECKING:
    from ...store.store import Store


def pending(
    session: OptionalSession = None,
    /,
    *,
    common: Common = DEFAULTS,
) -> None:
    """List what waits for a person in the whole store, with the commands that answer it.

    Two kinds of calls wait: calls that need approval, and calls in doubt, which may have happened although
    their process died during them. For these, look at the service first, then say what you found. Each is
    listed with why it is in doubt, what its verify hook said, and what it noted about itself. A call in
    doubt of a deleted session is listed while another session could do the same operation, or shares it.

    Parameters
    ----------
    session
        Only what waits in this session, or in this thread of LangGraph.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _pending(store, session, common))


async def _pending(store: Store, session: str | None, common: Common) -> None:
    from ...store.approvals import find_waiting
    from ..advice import answer_commands
    from ..console import print_json, say
    from ..json_views import shape_waiting
    from ..store_access import get_session_or_thread

    waiting = await find_waiting(store)
    if session is not None and all(one.session != session for one in waiting):
        ids = {head.session for head in await get_session_or_thread(store, session)}
        waiting = [one for one in waiting if one.session in ids]
    elif session is not None:  # It may have been deleted.
        waiting = [one for one in waiting if one.session == session]
    found = [shape_waiting(one) for one in waiting]
    for one in found:
        one["commands"] = answer_commands(one, found, common.store_options)
        one["then"] = await _find_call(store, one["session"], common)
    if common.json:
        print_json({"pending": found})
    elif not found:
        say("nothing waits for you")
    else:
        for one in found:
            _print(one)


async def _find_call(store: Store, session: str, common: Common) -> str | None:
    """What continues a session once its calls are answered; None if it was deleted."""
    from ...errors import NotFound
    from ..advice import continue_call

    try:
        head = await store.head(session)
    except NotFound:
        return None
    return continue_call(head, [run async for run in store.runs(session=session)], common)


def _print(one: dict[str, Any]) -> None:
    from rich.padding import Padding

    from ...system.clock import utc_now
    from ..console import SafeText, stdout
    from ..entry_text import list_notes, short_args
    from ..formatting import ago, shorten

    console = stdout()
    doubt = one["kind"] == "in_doubt"
    title = SafeText("in doubt" if doubt else "to approve", style="bold yellow" if doubt else "bold cyan")
    title.append(f"  {one['session']}  ", style="bold")
    args = "…" if one["args"] is None else short_args(one["args"])  # Gone with the session.
    title.append(shorten(f"{one['tool']}({args})", 400))
    title.append(f"  {ago(one['since'], utc_now())}", style="dim")
    console.print(title)
    if one["why"]:
        console.print(Padding(SafeText(one["why"], style="dim"), (0, 0, 0, 2), expand=False))
    for note in list_notes(one.get("notes", {})):
        console.print(Padding(SafeText(f"noted: {shorten(note, 400)}"), (0, 0, 0, 2), expand=False))
    for command in one["commands"].values():
        # Never wrapped, so that it can be copied.
        console.print(SafeText(f"  {command}"), soft_wrap=True)
    if one["then"]:
        console.print(SafeText().append("  then: ", style="dim").append(one["then"]), soft_wrap=True)
    console.print()

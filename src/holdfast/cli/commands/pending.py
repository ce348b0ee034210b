"""`holdfast pending`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..options import DEFAULTS, Common, complete_session

if TYPE_CHECKING:
    from ...store.store import Store


def pending(
    session: Annotated[str | None, Parameter(completer=complete_session)] = None,
    /,
    *,
    common: Common = DEFAULTS,
) -> None:
    """List what waits for a person, over the whole store, each with the commands that answer it.

    Two things wait: calls that need approval, and calls in doubt, of which nobody knows whether they happened
    because their process died in them. Look at the service first, then say what you found. A call in doubt of
    a session that was deleted is listed while another session could do the same, or shares it.

    Parameters
    ----------
    session
        Only what waits in this session.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _pending(store, session, common))


async def _pending(store: Store, session: str | None, common: Common) -> None:
    from ...store.approvals import find_waiting
    from ..console import print_json, say
    from ..json_views import shape_waiting
    from ..store_access import get_head

    found = [shape_waiting(one) for one in await find_waiting(store) if session in (None, one.session)]
    if session is not None and not found:
        await get_head(store, session)
    for one in found:
        one["commands"] = _commands(one, found, common)
    if common.json:
        print_json({"pending": found})
    elif not found:
        say("nothing waits for you")
    else:
        for one in found:
            _print(one)


def _commands(one: dict[str, Any], found: list[dict[str, Any]], common: Common) -> dict[str, str]:
    """Ready to be copied. Providers use call ids again: then only the entry tells two calls apart. So it does
    where an id cannot be shown as it is."""
    from ..console import visible

    same = [other for other in found if (other["session"], other["call"]) == (one["session"], one["call"])]
    shown = visible(one["call"]) == one["call"] and not one["call"].startswith(("@", "-"))
    plain = shown and len(same) == 1
    call = shlex.quote(one["call"]) if plain else f"@{one['entry']}"
    place = f"{one['session']} {call}"
    if one["kind"] == "approval":
        return {
            "approve": f"holdfast approve {place}{common.again}",
            "refuse": f"holdfast refuse {place} --reason '…'{common.again}",
        }
    if one["operation"] is not None:
        place = shlex.quote(one["operation"])
        return {
            "landed": f"holdfast resolve-operation {place} landed --result '…'{common.again}",
            "not_landed": f"holdfast resolve-operation {place} not-landed{common.again}",
        }
    return {
        "landed": f"holdfast resolve {place} landed --result '…'{common.again}",
        "not_landed": f"holdfast resolve {place} not-landed{common.again}",
        "gave_up": f"holdfast resolve {place} gave-up{common.again}",
    }


def _print(one: dict[str, Any]) -> None:
    from ...system.clock import utc_now
    from ..console import SafeText, stdout
    from ..entry_text import short_args
    from ..formatting import ago, shorten

    console = stdout()
    doubt = one["kind"] == "in_doubt"
    title = SafeText("in doubt" if doubt else "to approve", style="bold yellow" if doubt else "bold cyan")
    title.append(f"  {one['session']}  ", style="bold")
    title.append(shorten(f"{one['tool']}({short_args(one['args'])})", 400))
    title.append(f"  {ago(one['since'], utc_now())}", style="dim")
    console.print(title)
    if one["why"]:
        console.print(SafeText(f"  {one['why']}", style="dim"))
    for command in one["commands"].values():
        # Never wrapped: it is there to be copied.
        console.print(SafeText(f"  {command}"), soft_wrap=True)
    console.print()

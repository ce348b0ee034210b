"""`holdfast diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..options import DEFAULTS, Common, SessionArg

if TYPE_CHECKING:
    from ...core.diff import Diff
    from ...store.store import Store


def diff(session: SessionArg, a: int, b: int | None = None, /, *, common: Common = DEFAULTS) -> None:
    """Compare two versions of a session: messages, state, plan, summary, and what was spent between.

    `holdfast show` lists the versions. A version that a rewind left behind can be compared as well.

    Parameters
    ----------
    a
        The older version.
    b
        The newer version; the current one by default.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _diff(store, session, a, b, common))


async def _diff(store: Store, session: str, a: int, b: int | None, common: Common) -> None:
    from ..console import print_json
    from ..store_access import get_head

    head = await get_head(store, session)
    newer = head.current_version if b is None else b
    changes = await store.diff(session, a, newer)
    if common.json:
        print_json({"session": session, "a": a, "b": newer, **_shape(changes)})
    else:
        _print(changes, a, newer)


def _shape(changes: Diff) -> dict[str, Any]:
    from ..json_views import shape_message, shape_value

    return {
        "messages_removed": [shape_message(message) for message in changes.messages_removed],
        "messages_added": [shape_message(message) for message in changes.messages_added],
        "state": {
            key: {name: shape_value(getattr(change, name)) for name in ("before", "after")}
            for key, change in changes.state.items()
        },
        "plan": {id: {"before": old, "after": new} for id, (old, new) in changes.plan.items()},
        "summary": None
        if changes.summary is None
        else {"before": changes.summary[0], "after": changes.summary[1]},
        "spending": changes.spending,
    }


def _print(changes: Diff, a: int, b: int) -> None:
    from ..console import SafeText, say, stdout
    from ..entry_text import message_text
    from ..formatting import count, span, usd
    from ..json_views import shape_value

    console = stdout()

    def line(sign: str, what: str) -> None:
        said = f"{sign} {what}".replace("\n", f"\n{sign} ")
        console.print(SafeText(said, style="green" if sign == "+" else "red", lines=True), soft_wrap=True)

    if not changes:
        say(f"versions {a} and {b} are the same")
    for message in changes.messages_removed:
        line("-", f"{message.role}: {message_text(message)}")
    for message in changes.messages_added:
        line("+", f"{message.role}: {message_text(message)}")
    for key, change in changes.state.items():
        for sign, value in (("-", shape_value(change.before)), ("+", shape_value(change.after))):
            if value is not None:
                line(sign, f"state {key}: {value}")
    for id, (old, new) in changes.plan.items():
        if old is not None:
            line("-", f"plan {id}: {old.what} [{old.status}]")
        if new is not None:
            line("+", f"plan {id}: {new.what} [{new.status}]")
    if changes.summary is not None:
        line("-", f"summary: {changes.summary[0]}")
        line("+", f"summary: {changes.summary[1]}")
    spent = changes.spending
    console.print(
        SafeText(
            f"{count(spent.steps, 'step')}, {span(spent.seconds)}, {spent.tokens:,} tokens, {usd(spent.usd)}",
            style="dim",
        )
    )

"""`holdfast fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import DEFAULTS, Common, Labels, SessionArg, parse_labels

if TYPE_CHECKING:
    from ...store.store import Store


def fork(
    session: SessionArg,
    /,
    *,
    version: int | None = None,
    into: str | None = None,
    label: Labels = (),
    common: Common = DEFAULTS,
) -> None:
    """Start a new session from a version of another one, and print its id.

    The history is shared, not copied, and the origin is not changed: any process may hold it, and it may be
    deleted later. Side effects of the origin after that version stay done; the fork records which they are.

    Parameters
    ----------
    version
        The version; the latest by default.
    into
        The id of the new session.
    label
        A label for the new session, as name=value.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _fork(store, session, version, into, label, common))


async def _fork(
    store: Store, session: str, version: int | None, into: str | None, label: tuple[str, ...], common: Common
) -> None:
    from ..console import print_json, print_text, say
    from ..store_access import get_head

    await get_head(store, session)
    made = await store.fork(session, version=version, into=into, labels=parse_labels(label))
    state = await store.load(made)
    left = state.facts.left_behind
    if common.json:
        print_json({"session": made, "origin": session, "version": state.version, "left_behind": left})
        return
    print_text(made)
    for effect in left:
        status = effect.status.replace("_", " ")
        say(f"session {session} did {effect.tool} ({effect.call}, {status}) after version {state.version}")

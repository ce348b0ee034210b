"""`holdfast show`."""

from __future__ import annotations

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
    common: Common = DEFAULTS,
) -> None:
    """Tell the story of a session: who held it, what happened step by step, where it broke off.

    The timeline has the time that the model and the tools took, what each step cost, and what became of every
    call: completed, replayed, refused, failed, in doubt. A holder that went away without a goodbye is marked
    where it was last seen, with what it was doing; the run that goes on says which one it continues. Below it
    are the versions to go back to, and the tree of runs and delegates.

    Parameters
    ----------
    last
        Only this many of the latest moments.
    brief
        Without the timeline.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _show(store, session, last, brief, common))


async def _show(store: Store, session: str, last: int | None, brief: bool, common: Common) -> None:
    from ..console import print_json, stdout
    from ..session_report import print_story, read_story, shape_story
    from ..store_access import get_head

    head = await get_head(store, session)
    story = await read_story(store, head)
    if last is not None:
        story.timeline.moments[:] = story.timeline.moments[-last:] if last > 0 else []
    if common.json:
        print_json(shape_story(story))
    else:
        print_story(stdout(), story, brief=brief)

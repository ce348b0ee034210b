"""Continue a session: from its end, from an earlier version, or in a fork."""

from __future__ import annotations

from msgspec import Struct
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from ...errors import NotFound
from ...ids import fit_session_id, label_of_original, unfit_session_id
from ...session.session import Session
from ...store.store import Store
from .history import add, messages_from


class Continuation(Struct, frozen=True):
    """Where to continue: pass `messages` to the agent as `message_history`, and `session` to `Durable`."""

    session: str
    version: int
    messages: list[ModelMessage]


async def continue_run(store: Store, *, session: str, version: int | None = None) -> Continuation:
    """The history of a session, to continue with a new prompt.

    If its last run was cut off in the middle of a step, the session goes back to the last continuable
    version, or to `version`. The journal keeps what came after it. To finish a run that was cut off, this is
    not needed: call `agent.run` with the same prompt.
    """
    async with store.session(fit_session_id(session), create=False) as opened:
        if version is not None and version != opened.version:
            await opened.rewind(version=version)
        reached = await go_back(opened)
        # In a thread: what is large in them is read from blobs now.
        messages = await opened._writer.engine.call(messages_from, list(opened.transcript))
        return Continuation(session, reached, messages)


async def fork_run(
    store: Store, *, session: str, version: int | None = None, into: str | None = None
) -> Continuation:
    """A new session that begins with the history of another, at its latest version or an earlier one; another
    agent may go on with it. What was done in the world is inherited with it, and is not done again."""
    origin = fit_session_id(session)
    target = None if into is None else fit_session_id(into)
    labels = {"session": label_of_original(into)} if into is not None and target != into else None
    forked = await store.fork(origin, version=version, into=target, labels=labels)
    return await continue_run(store, session=unfit_session_id(forked) if into is None else into)


_SAID = "No result: the run was cut off before this call had one, and was not resumed."


async def go_back(session: Session) -> int:
    """Go back to the last continuable version, and return it.

    If there is none, calls without a result get one that says so.
    """
    try:
        return await session.continue_()
    except NotFound:
        parts = [
            ToolReturnPart(one.name, _SAID, one.call_id, outcome="interrupted")
            for one in session.problems
            if one.kind == "missing"
        ]
        await add(session, [ModelRequest(parts=parts)])
        return await session.checkpoint()

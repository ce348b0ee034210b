"""Continue a session: from its end, from an earlier version, or in a fork."""

from __future__ import annotations

from msgspec import Struct
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from ...errors import NotFound
from ...formats.pydantic_ai import to_pydantic_ai
from ...ids import fit_session_id, label_of_original, unfit_session_id
from ...session.session import Session
from ...store.opening import AnyStore, use_store
from .history import add


class Continuation(Struct, frozen=True):
    """Where to continue: pass `messages` to the agent as `message_history`, and `session` to `Durable`."""

    session: str
    version: int
    messages: list[ModelMessage]


async def continue_run(store: AnyStore, *, session: str, version: int | None = None) -> Continuation:
    """The history of a session, to continue with a new prompt.

    If its last run was cut off in the middle of a step, the session goes back to the last continuable
    version, or to `version`. The journal keeps what came after it. To finish a run that was cut off, this is
    not needed: call `agent.run` with the same prompt.
    """
    async with (
        use_store(store) as found,
        found.session(fit_session_id(session), create=False) as continued,
    ):
        if version is not None and version != continued.version:
            await continued.rewind(version=version)
        reached = await go_back(continued)
        # In a thread: what is large in them is read from blobs now.
        messages = await continued._writer.engine.call(to_pydantic_ai, list(continued.transcript))
        return Continuation(session, reached, messages)


async def fork_run(
    store: AnyStore, *, session: str, version: int | None = None, into: str | None = None
) -> Continuation:
    """A new session that begins with the history of another, at its latest version or an earlier one; another
    agent may go on with it. What was done in the world is inherited with it, and is not done again."""
    origin = fit_session_id(session)
    target = None if into is None else fit_session_id(into)
    labels = {"session": label_of_original(into)} if into is not None and target != into else None
    async with use_store(store) as found:
        forked = await found.fork(origin, version=version, into=target, labels=labels)
        return await continue_run(found, session=unfit_session_id(forked) if into is None else into)


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

"""Putting work into a session's inbox, and making the session if there is none."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.entries import SessionOpened
from ..core.session_state import SessionState
from ..drivers.contract import Append
from ..engine.engine import Engine
from ..errors import NotFound
from ..ids import SessionId, fresh_uid
from ..session.lease import append_to


async def submit(
    engine: Engine, session: SessionId, item: bytes, agent: str | None, labels: Mapping[str, str]
) -> int:
    """Post the item; its number. Who names an agent has the session made."""
    while True:
        try:
            return await engine.call(engine.driver.post, session, item)
        except NotFound as missing:
            if agent is None:
                raise NotFound(
                    f"no session {session!r}; submit(…, agent=…) makes one for an agent to work on"
                ) from missing
        # If the process dies in between, there is an empty session: submitting again goes on with it.
        await engine.call(_make, engine, session, agent, dict(labels))


def _make(engine: Engine, session: SessionId, agent: str, labels: dict[str, str]) -> None:
    state = SessionState(session)
    sealed = append_to(state, SessionOpened(uid=fresh_uid(), labels=labels, agent=agent), engine)
    head = state.facts.head
    item = Append(
        session=session,
        after=None,
        first_seq=sealed.entry.seq,
        lines=(sealed.line,),
        kinds=(sealed.entry.kind,),
        head=head,
    )
    engine.committer.commit_now(item)  # Whoever else made it meanwhile made it just as well.

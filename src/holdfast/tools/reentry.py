"""What a tool's function or hook may not ask of the session that it works for: to be called once more.

Bodies and hooks may call other tools of their session, and drive other sessions. What is around a caller is
kept in its context, so tasks and threads that it starts are inside, too, until it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from ..errors import BadInput
from ..session.session import Session


class _Work(Struct):
    uid: str
    what: str
    key: str
    fingerprint: str
    over: bool = False


_around: ContextVar[tuple[_Work, ...]] = ContextVar("holdfast_work", default=())


@contextmanager
def working(session: Session, what: str, *, key: str = "", fingerprint: str = "") -> Iterator[None]:
    """The block calls a tool's function or hook (`what`) for the session."""
    work = _Work(session.state.facts.head.uid, what, key, fingerprint)
    token = _around.set((*_around.get(), work))
    try:
        yield
    finally:
        work.over = True
        _around.reset(token)


def refuse_inside(session: Session, asked: str) -> None:
    """Refuse what would call every tool of the session again, from inside of one."""
    for work in _list_around(session):
        raise BadInput(
            f"session {session.id!r}: {work.what} called {asked} on the session that it works for, which "
            "would call it again. Call it from outside of tools and hooks, or for another session"
        )


def refuse_itself(session: Session, tool: str, fingerprint: str) -> None:
    """Refuse a call that a tool makes of itself, with the same arguments."""
    for work in _list_around(session):
        if work.fingerprint == fingerprint:
            raise BadInput(
                f"session {session.id!r}: {work.what} called {tool} with the arguments that it was called "
                "with itself, and so would that call"
            )


def refuse_waiting(session: Session, key: str) -> None:
    """Refuse to wait for what cannot end before the caller does."""
    for work in _list_around(session):
        if work.key == key:
            raise BadInput(
                f"session {session.id!r}: {work.what} asks for the very effect that it is at, and would "
                "wait for itself for ever"
            )


def _list_around(session: Session) -> list[_Work]:
    around = _around.get()
    if not around:
        return []
    uid = session.state.facts.head.uid
    return [work for work in around if work.uid == uid and not work.over]

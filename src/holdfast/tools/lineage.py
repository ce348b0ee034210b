"""The root session of a delegate: scope `session` is counted there, over all delegates."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from ..core.effects import call_name
from ..core.entries import CallRef
from ..ids import SessionId
from ..session.session import Session

ROOT_SCOPES = frozenset({"session", "custom"})
"""Scopes in which calls of all delegates of a root session are one operation."""


class Lineage(Struct, frozen=True):
    """The root session of a delegate's session, open in this process, and the depth below it."""

    root: Session
    depth: int

    @classmethod
    def of(cls, session: Session) -> Lineage | None:
        """The lineage of an open session; None if it is no delegate's."""
        found = session._writer.extensions.get(cls)
        assert found is None or isinstance(found, Lineage)
        return found

    @classmethod
    def under(cls, parent: Session) -> Lineage:
        """The lineage of a delegate of this session."""
        above = cls.of(parent)
        return cls(parent, 1) if above is None else cls(above.root, above.depth + 1)


def name_at_root(session: Session, call: CallRef) -> CallRef:
    """A delegate's call, as the root's ledger knows it."""
    return CallRef(id=f"{prefix_at_root(session)}{call_name(call)}")


def prefix_at_root(session: Session) -> str:
    """The beginning of the ids of a delegate's calls in the root's ledger."""
    return f"{session.id}/"


def derive_id(parent: SessionId, name: str, key: str) -> SessionId:
    """The session of a delegate: the same in every attempt at the same call."""
    return SessionId(f"{_stem_of(parent)}{name[:40]}-{key[:16]}")


def belongs_to_delegate(session: Session, call: CallRef) -> bool:
    """Whether a call in this session's ledger is one of a delegate's, or of one further down."""
    return any(
        call.id.startswith((f"{delegate}/", _stem_of(SessionId(delegate))))
        for delegate in session.state.facts.delegates
    )


def _stem_of(parent: SessionId) -> str:
    """The beginning of the ids of its delegates' sessions."""
    if len(parent) > 120:
        # A fork begins like its origin, and has the keys of its calls.
        return f"{parent[:103]}-{sha256(parent.encode()).hexdigest()[:16]}."
    return f"{parent}."

"""Who a session works for: what a delegate does once per session, it does once per root session."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from ..core.effects import call_name
from ..core.entries import CallRef
from ..ids import SessionId
from ..session.session import Session

ROOT_SCOPES = frozenset({"session", "custom"})
"""What is one operation of the root's, whichever of its delegates asks for it."""


class Lineage(Struct, frozen=True):
    """The session at the root of a delegate's, open in this process, and how many are between."""

    root: Session
    depth: int

    @classmethod
    def of(cls, session: Session) -> Lineage | None:
        """The lineage of an open session; None if it works for nobody."""
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
    """How the calls of a delegate begin in the root's ledger."""
    return f"{session.id}/"


def derive_id(parent: SessionId, name: str, key: str) -> SessionId:
    """The session of a delegate: the same for the same call, whoever asks."""
    return SessionId(f"{_stem_of(parent)}{name[:40]}-{key[:16]}")


def belongs_to_delegate(session: Session, call: CallRef) -> bool:
    """Whether a call in this session's ledger is one of a delegate's, or of one further down."""
    return any(
        call.id.startswith((f"{delegate}/", _stem_of(SessionId(delegate))))
        for delegate in session.state.facts.delegates
    )


def _stem_of(parent: SessionId) -> str:
    """How the sessions of its delegates begin."""
    if len(parent) > 120:
        # A fork begins like its origin, and has the keys of its calls.
        return f"{parent[:103]}-{sha256(parent.encode()).hexdigest()[:16]}."
    return f"{parent}."

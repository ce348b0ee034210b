"""Replicas: read-only copies of sessions of another store.

A replica's journal is that of its session, byte for byte, so it cannot say what it is: the claim
`replica:<session>` does. It is made in the commit that begins the replica, and names its uid: without it, two
stores would drive one session, hand out the same effect keys, and settle the same calls in doubt.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..drivers.contract import Driver
from ..errors import Corrupt, ReadOnlyReplica
from ..ids import SessionId


class ReplicaRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session with this uid is a replica, of a session of the store with the id `store`.

    `address` is where that is, for people, if the session was moved there.
    """

    uid: str
    store: str
    address: str = ""


_decode = msgspec.json.Decoder(ReplicaRecord).decode


def replica_key(session: SessionId) -> str:
    """The key of the claim that says that a session is a replica."""
    return f"replica:{session}"


def find_replica(driver: Driver, session: SessionId, uid: str) -> ReplicaRecord | None:
    """What says that this session is a replica; None if it is none, or is another one of this id. Blocks."""
    found = read_replica(driver.find_claim(replica_key(session)), session)
    return found if found is not None and found.uid == uid else None


def read_replica(record: str | None, session: SessionId) -> ReplicaRecord | None:
    """The record of a claim, or `Corrupt`."""
    if record is None:
        return None
    try:
        return _decode(record)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"claim {replica_key(session)!r}", f"its record cannot be read ({error})") from error


def refuse_replica(driver: Driver, session: SessionId, uid: str) -> None:
    """Raise `ReadOnlyReplica` if this session is a replica. Blocks."""
    found = find_replica(driver, session, uid)
    if found is not None:
        raise ReadOnlyReplica(session, found.store, found.address)

"""What the server or libpq says, in our words. The one place where psycopg's errors become ours."""

from __future__ import annotations

import re
from typing import Final

import psycopg

from ...errors import BadUrl, Corrupt, HoldfastError, NotFound, StoreBusy, StoreFailed, StoreUnreachable

_AWAY: Final = ("08", "57P", "53300")
"""The connection or the server is gone; or it has no room for another client."""

_READ_ONLY: Final = "25006"

_AGAIN: Final = ("40001", "40P01", "23505")
"""Rolled back, because somebody else did something at the same moment."""

_DAMAGED: Final = ("XX001", "XX002")


class Collided(Exception):
    """Nothing was written: somebody else was quicker by a moment. Trying again at once helps."""


class NoAnswer(psycopg.OperationalError):
    """The server is reachable and says nothing."""


class StillAway(StoreUnreachable):
    """The server was waited for already: trying again at once does not help."""


def translate(
    error: psycopg.Error, shown: str, schema: str, *, several: bool = False
) -> HoldfastError | Collided:
    """Our error in the place of psycopg's. `several`: there are other servers to turn to."""
    state = error.sqlstate or ""
    why = _say(error)
    if state in _AGAIN:
        return Collided(why)
    if isinstance(error, NoAnswer):
        return StillAway(f"{shown}: the server does not answer: {why}. It may have done what it was asked to")
    if state == _READ_ONLY:
        if several:
            return StoreUnreachable(f"{shown}: the server can only be read by now: {why}")
        return StoreFailed(
            f"{shown} is read-only: {why}. The server is a standby, or default_transaction_read_only is on "
            "for it, the database or the role. Sessions can be read; to write, name the primary, or a role "
            "that may write"
        )
    if state.startswith(_AWAY) or (not state and isinstance(error, psycopg.OperationalError)):
        return StoreUnreachable(f"{shown}: the connection to the server was lost: {why}")
    if state == "53100":
        return StoreFailed(f"{shown}: the server's disk is full; free some space and try again")
    if state == "42501":
        return StoreFailed(
            f"{shown}: {why}. Grant the role USAGE on schema {schema!r}, SELECT, INSERT, UPDATE and DELETE "
            "on its tables, and EXECUTE on its functions; making or upgrading the schema takes CREATE, once"
        )
    if state in ("55P03", "57014"):
        return StoreBusy(
            f"{shown}: another transaction kept a lock for too long, or the server is overloaded: {why}. "
            "pg_stat_activity shows who is 'idle in transaction'; nothing was written, and trying again is "
            "safe"
        )
    if state.startswith(_DAMAGED):
        return Corrupt(shown, f"the server found damage: {why}")
    return StoreFailed(f"{shown}: {why}")


def refused(error: psycopg.Error, shown: str) -> HoldfastError:
    """Why there is no connection. libpq gives no code here, only words; they never hold the password."""
    why = _say(error)
    if re.search(r'database ".*" does not exist', why):
        return NotFound(f"{shown}: {why}; make it first: createdb -E UTF8 …")
    if re.search(r"authentication failed|no password supplied|role \".*\" does not exist|pg_hba", why):
        return BadUrl(f"{shown}: the server refuses this user: {why}")
    return StoreUnreachable(f"{shown}: cannot connect: {why}")


def _say(error: psycopg.Error) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__

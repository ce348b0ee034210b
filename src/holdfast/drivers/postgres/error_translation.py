"""From psycopg's errors to holdfast's. No other module of the driver translates them."""

from __future__ import annotations

import re
from typing import Final

import psycopg

from ...errors import BadUrl, Corrupt, HoldfastError, NotFound, StoreBusy, StoreFailed, StoreUnreachable

_UNREACHABLE: Final = ("08", "57P", "53300")
"""The connection is lost, the server is down, or it takes no more clients."""

_READ_ONLY: Final = "25006"

_CONFLICT: Final = ("40001", "40P01", "23505")
"""Rolled back because of a concurrent transaction."""

_DAMAGED: Final = ("XX001", "XX002")


class RetryableConflict(Exception):
    """A concurrent transaction was first, and nothing was written. Trying again at once helps."""


class NoAnswer(psycopg.OperationalError):
    """The server accepts connections, but does not answer."""


class StillUnreachable(StoreUnreachable):
    """The driver has waited for the server already: trying again at once does not help."""


def translate(
    error: psycopg.Error, shown: str, schema: str, *, several_hosts: bool = False
) -> HoldfastError | RetryableConflict:
    """The error to raise. `several_hosts`: there are other servers to try."""
    state = error.sqlstate or ""
    why = _one_line(error)
    if state in _CONFLICT:
        return RetryableConflict(why)
    if isinstance(error, NoAnswer):
        return StillUnreachable(
            f"{shown}: the server does not answer: {why}. The statement may have run all the same"
        )
    if state == _READ_ONLY:
        if several_hosts:
            return StoreUnreachable(f"{shown}: the server has become read-only: {why}")
        return StoreFailed(
            f"{shown} is read-only: {why}. The server is a standby, or default_transaction_read_only is on "
            "for it, the database or the role. Sessions can be read; to write, name the primary, or a role "
            "that may write"
        )
    if state.startswith(_UNREACHABLE) or (not state and isinstance(error, psycopg.OperationalError)):
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
            "pg_stat_activity shows sessions that are 'idle in transaction'; nothing was written, and trying "
            "again is safe"
        )
    if state.startswith(_DAMAGED):
        return Corrupt(shown, f"the server found damage: {why}")
    return StoreFailed(f"{shown}: {why}")


def translate_connect_error(error: psycopg.Error, shown: str) -> HoldfastError:
    """The error to raise if connecting failed. libpq gives only a text here; it never holds the password."""
    why = _one_line(error)
    if re.search(r'database ".*" does not exist', why):
        return NotFound(f"{shown}: {why}; make it first: createdb -E UTF8 …")
    if re.search(r"authentication failed|no password supplied|role \".*\" does not exist|pg_hba", why):
        return BadUrl(f"{shown}: the server refuses this user: {why}")
    return StoreUnreachable(f"{shown}: cannot connect: {why}")


def _one_line(error: psycopg.Error) -> str:
    """The text of an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__

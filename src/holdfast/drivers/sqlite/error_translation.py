"""From SQLite's errors to holdfast's. No other module of the driver translates them."""

from __future__ import annotations

from pathlib import Path

import apsw

from ...errors import BadUrl, Corrupt, HoldfastError, StoreBusy, StoreFailed
from ...limits import BUSY_S


class LogLost(StoreFailed):
    """The files were replaced while they were in use: a write may or may not have landed."""


def translate(error: apsw.Error | OSError, path: Path, *, wait: bool = True) -> HoldfastError:
    """The error to raise. Without `wait`, the call did not wait for other writers."""
    match error:
        case apsw.BusyError() if not wait:
            return StoreBusy(f"{path}: another process is writing")
        case apsw.BusyError():
            return StoreBusy(
                f"{path}: another process kept the database locked for {BUSY_S:.0f} s; "
                "is one of them stopped in the middle of a write?"
            )
        case apsw.NotADBError():
            return BadUrl(f"{path} is not a SQLite database")
        case apsw.CorruptError():
            return Corrupt(
                str(path), f"the database is damaged ({error}); restore a copy, or recover what is "
                "left with the sqlite3 shell's .recover",
            )  # fmt: skip
        case apsw.FullError():
            return StoreFailed(f"{path}: the disk is full; free some space and try again")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreFailed(
                f"{path} cannot be opened for writing ({error}); check that the file and its "
                "directory are writable"
            )
        case OSError():
            return StoreFailed(f"{path}: {error.strerror or error}")
    return StoreFailed(f"{path}: {error}")

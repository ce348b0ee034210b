"""Every error that holdfast raises.

HoldfastError
├── BadInput (also a ValueError)       what was given is wrong; trying again changes nothing
│   ├── BadUrl                         a store's URL
│   ├── BadId                          the id of a session, run or holder
│   ├── BadMessage                     a message that cannot be stored faithfully
│   ├── NotAList (also a TypeError)    a text where a list belongs
│   └── RunExists                      an explicit run id was used before
├── NotFound (also a LookupError)      no such session, version, run or store
├── MissingExtra (also an ImportError) an optional dependency is not installed
├── LeaseHeld                          somebody else drives the session: try again later
├── Fenced                             the lease was taken over: open the session again
├── Overtaken                          another writer was quicker: look again, then decide anew
├── ReadOnly                           a newer holdfast wrote something that must be understood
├── NewerFormat                        the store was written by a newer holdfast: upgrade
├── Corrupt                            stored bytes are damaged; nothing was changed
├── LostBlob                           content that an entry refers to is missing or damaged
├── BudgetSpent                        a cap of the session's budget is reached
├── ModelError                         a model gave no reply; `retryable` says whether trying again can help
├── Closed                             the session or store was closed
└── StoreFailed                        the disk or server failed: try again once the cause is gone
    ├── StoreBusy                      another process kept the store locked for too long
    └── StoreUnreachable               the server cannot be reached, or hung up in the middle
"""

from __future__ import annotations

__all__ = [
    "BadId",
    "BadInput",
    "BadMessage",
    "BadUrl",
    "BudgetSpent",
    "Closed",
    "Corrupt",
    "Fenced",
    "HoldfastError",
    "LeaseHeld",
    "LostBlob",
    "MissingExtra",
    "ModelError",
    "NewerFormat",
    "NotAList",
    "NotFound",
    "Overtaken",
    "ReadOnly",
    "RunExists",
    "StoreBusy",
    "StoreFailed",
    "StoreUnreachable",
]


class HoldfastError(Exception):
    """The root of everything that holdfast raises on purpose."""


class BadInput(HoldfastError, ValueError):
    """What was given is wrong; nothing was written."""


class BadUrl(BadInput):
    """A store URL that names no store."""


class BadId(BadInput):
    """An id outside the alphabet, or of the wrong length."""

    def __init__(self, what: str, value: object, why: str) -> None:
        super().__init__(f"{what} {value!r} {why}")
        self.what, self.value = what, value


class BadMessage(BadInput):
    """A message that could not be given back as it was."""


class NotAList(BadInput, TypeError):
    """A text where a list belongs; nothing was done. Taken for a list, it would be its letters."""

    def __init__(self, name: str, given: str | bytes) -> None:
        super().__init__(f"{name} is a list: write {name}=[{given!r}] for one of them, not {name}={given!r}")
        self.name = name


class RunExists(BadInput):
    """An explicit run id that an earlier run already has."""

    def __init__(self, run: str, session: str) -> None:
        super().__init__(
            f"run id {run!r} exists already (in session {session!r}); every run needs a fresh id. "
            "To group several runs, give them the same session instead, or leave run_id out."
        )
        self.run, self.session = run, session


class NotFound(HoldfastError, LookupError):
    """What was asked for is not there."""


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str, found: str = "") -> None:
        but = f" ({found})" if found else ""
        super().__init__(f"{feature} needs an extra: pip install 'holdfast[{extra}]'{but}")
        self.feature, self.extra = feature, extra


class LeaseHeld(HoldfastError):
    """Somebody else holds the lease. Try again later, or pass `wait_s`."""

    def __init__(self, name: str, holder: str, *, left_s: float | None, here: bool = False) -> None:
        if here:
            until = "it is open in this process already; close it first"
        elif left_s is None:
            until = "on another machine; it counts as gone once it was silent for a whole lease term"
        else:
            until = f"its lease runs out in {max(left_s, 0):.1f} s unless renewed"
        super().__init__(f"{name!r} is held by {holder}: {until}. Pass wait_s=… to wait for it.")
        self.name, self.holder, self.left_s = name, holder, left_s


class Fenced(HoldfastError):
    """The lease was taken over; nothing more can be written through this object."""

    def __init__(self, name: str, *, fence: int, by: str | None = None) -> None:
        taker = f" by {by}" if by else ""
        super().__init__(
            f"{name!r}: the lease with fence {fence} was taken over{taker}; "
            "not one further line was written. Open it again to go on from what is there now."
        )
        self.name, self.fence, self.by = name, fence, by


class Overtaken(HoldfastError):
    """Somebody else wrote after this writer last looked; nothing was written."""

    def __init__(self, what: str, name: str, writer: str) -> None:
        super().__init__(
            f"{what}: {name} (writer {writer}) wrote to it after it was last read here; nothing was written. "
            "Two at once would each go on without what the other did. Read it again, and go on from there."
        )
        self.what, self.name, self.writer = what, name, writer


class ReadOnly(HoldfastError):
    """The journal holds a line that must be understood, of a kind this version does not know."""

    def __init__(self, session: str, kind: str, seq: int) -> None:
        super().__init__(
            f"session {session!r} can only be read: entry {seq} is of kind {kind!r}, which changes "
            "decisions and is not known to this version. Upgrade holdfast to write to it."
        )
        self.session, self.kind, self.seq = session, kind, seq


class NewerFormat(HoldfastError):
    """The stored format is newer than this code."""


class Corrupt(HoldfastError):
    """Stored bytes are not what was written."""

    def __init__(self, where: str, why: str, *, line: int | None = None, seq: int | None = None) -> None:
        place = where + (f", line {line}" if line is not None else "") + (f", entry {seq}" if seq else "")
        super().__init__(f"{place}: {why}. Nothing was changed.")
        self.where, self.line, self.seq = where, line, seq


class LostBlob(HoldfastError):
    """A blob that an entry refers to is missing or damaged. The rest of the session is not affected.

    `entry` is its number, or None for a value of the user's, of which `where` names the key.
    """

    def __init__(self, session: str, digest: str, why: str, *, entry: int | None, where: str = "") -> None:
        place = where or f"entry {entry}"
        super().__init__(f"session {session!r}, {place}: blob {digest} cannot be read: {why}")
        self.session, self.entry, self.where, self.digest, self.why = session, entry, place, digest, why


class BudgetSpent(HoldfastError):
    """A cap is reached; the request was not made."""

    def __init__(self, session: str, cap: str, *, limit: float, spent: float, wanted: float = 0) -> None:
        more = f" and {wanted:g} more would be reserved" if wanted else ""
        super().__init__(f"session {session!r} has spent {spent:g} of {limit:g} {cap}{more}")
        self.session, self.cap, self.limit, self.spent, self.wanted = session, cap, limit, spent, wanted


class ModelError(HoldfastError):
    """A model gave no reply.

    `retryable`: the same request may succeed later, after `retry_after_s` if the provider said so.
    `charged`: the provider may have worked for it all the same (a connection cut in the middle of a reply).
    """

    def __init__(
        self,
        why: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
        charged: bool = False,
        status: int | None = None,
    ) -> None:
        super().__init__(why)
        self.retryable, self.retry_after_s, self.charged = retryable, retry_after_s, charged
        self.status = status


class Closed(HoldfastError):
    """Used after it was closed, or in another process than the one that opened it."""


class StoreFailed(HoldfastError):
    """The disk or server failed. Nothing acknowledged is lost.

    What was not acknowledged stays in memory and is written first by the next call that waits for the
    disk (`session.flush()`, `session.checkpoint()` …), so trying again once the cause is gone is safe.
    """


class StoreBusy(StoreFailed):
    """Another process kept the store locked for longer than anyone should, or at all, for who cannot wait."""


class StoreUnreachable(StoreFailed):
    """The store's server cannot be reached, or hung up before it answered."""

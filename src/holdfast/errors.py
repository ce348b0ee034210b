"""Every error that holdfast raises, and whether a retry of the same call helps.

HoldfastError
├── BadInput (also a ValueError)       no: an argument is wrong; nothing was written
│   ├── BadUrl                         no: correct the URL of the store or home
│   ├── BadId                          no: correct the id of the session, run or holder
│   ├── BadMessage                     no: the message cannot be stored faithfully
│   ├── KeyReused                      no: give another message another key
│   ├── NotAList (also a TypeError)    no: give a list instead of a text
│   └── RunExists                      no: choose another run id, or none
├── Misuse (also a TypeError)          no: write what the error says
├── NotFound (also a LookupError)      no: there is no such session, version, run or store
├── MissingExtra (also an ImportError) no: install the optional dependency
├── LeaseHeld                          yes, later: another holder has the lease; or pass `wait_s`
├── Fenced                             no: the lease was taken over; open the session again
├── Overtaken                          yes, after a new read: another writer wrote first
├── ReadOnly                           no: upgrade holdfast to write to this session
├── OpenedToRead                       no: open the store without `read_only`
├── NewerFormat                        no: upgrade holdfast to read this store
├── Corrupt                            no: stored bytes are damaged; nothing was changed
├── LostBlob                           no: a blob is missing or damaged
├── BudgetSpent                        no: end the run, or raise the cap
├── ModelError                         if `retryable`: the model gave no reply
├── Closed                             no: open the session or store again
└── StoreFailed                        yes, when the cause is gone: the disk or server failed
    ├── StoreBusy                      yes, later: another process kept the store locked
    └── StoreUnreachable               yes, later: the server cannot be reached
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
    "KeyReused",
    "LeaseHeld",
    "LostBlob",
    "MissingExtra",
    "Misuse",
    "ModelError",
    "NewerFormat",
    "NotAList",
    "NotFound",
    "OpenedToRead",
    "Overtaken",
    "ReadOnly",
    "RunExists",
    "StoreBusy",
    "StoreFailed",
    "StoreUnreachable",
]


class HoldfastError(Exception):
    """The base of all errors that holdfast raises on purpose."""


class BadInput(HoldfastError, ValueError):
    """An argument is wrong; nothing was written. A retry does not help."""


class BadUrl(BadInput):
    """The URL names no store or home. A retry does not help."""


class BadId(BadInput):
    """The id has characters that are not allowed, or is too long or empty. A retry does not help."""

    def __init__(self, what: str, value: object, why: str) -> None:
        super().__init__(f"{what} {value!r} {why}")
        self.what, self.value = what, value


class BadMessage(BadInput):
    """The message cannot be stored so that it is read back unchanged. A retry does not help."""


class NotAList(BadInput, TypeError):
    """A text was given where a list belongs, and would be taken for its letters. A retry does not help."""

    def __init__(self, name: str, given: str | bytes) -> None:
        super().__init__(f"{name} is a list: write {name}=[{given!r}] for one of them, not {name}={given!r}")
        self.name = name


class RunExists(BadInput):
    """An earlier run has this run id. A retry needs another id."""

    def __init__(self, run: str, session: str) -> None:
        super().__init__(
            f"run id {run!r} exists already (in session {session!r}); every run needs a new id. "
            "To group several runs, give them the same session instead, or leave run_id out."
        )
        self.run, self.session = run, session


class KeyReused(BadInput):
    """The key names another message of the session. The same key means the same message, sent again."""

    def __init__(self, key: str, session: str) -> None:
        super().__init__(
            f"key {key!r} was used in session {session!r} before, for another message; a retry has the same "
            "key and the same message, a new message needs a new key"
        )
        self.key, self.session = key, session


class Misuse(HoldfastError, TypeError):
    """The object cannot be used in this way: `with` for `async with`, `for` for `async for`, `pickle`.

    Nothing was opened. A retry does not help; the text says what to write.
    """


class NotFound(HoldfastError, LookupError):
    """The session, version, run, key or store does not exist. A retry does not help."""


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed. A retry helps after its installation."""

    def __init__(self, feature: str, extra: str, found: str = "", *, package: str = "") -> None:
        but = f" ({found})" if found else ""
        needs = package or "an extra"
        install = package or f"'holdfast[{extra}]'"
        super().__init__(f"{feature} needs {needs}: pip install {install}{but}")
        self.feature, self.extra, self.package = feature, extra, package


class LeaseHeld(HoldfastError):
    """Another holder has the lease. A retry helps later; or pass `wait_s`."""

    def __init__(self, name: str, holder: str, *, left_s: float | None, here: bool = False) -> None:
        if here:
            until = "it is open in this process already; close it first"
        elif left_s is None:
            until = "on another machine; its lease ends when it is silent for a whole lease term"
        else:
            until = f"its lease runs out in {max(left_s, 0):.1f} s unless renewed"
        super().__init__(f"{name!r} is held by {holder}: {until}. Pass wait_s=… to wait for it.")
        self.name, self.holder, self.left_s = name, holder, left_s


class Fenced(HoldfastError):
    """Another holder took the lease; nothing more can be written through this object. Open it again."""

    def __init__(self, name: str, *, fence: int, by: str | None = None) -> None:
        taker = f" by {by}" if by else ""
        super().__init__(
            f"{name!r}: the lease with fence {fence} was taken over{taker}; "
            "nothing was written after that. Open it again to continue from its current state."
        )
        self.name, self.fence, self.by = name, fence, by


class Overtaken(HoldfastError):
    """Another writer wrote after this one last read; nothing was written. Read again, then retry."""

    def __init__(self, what: str, name: str, writer: str) -> None:
        super().__init__(
            f"{what}: {name} (writer {writer}) wrote to it after it was last read here; nothing was written. "
            "Each of the two would miss what the other wrote. Read it again, and continue from there."
        )
        self.what, self.name, self.writer = what, name, writer


class ReadOnly(HoldfastError):
    """The journal has an entry of an unknown kind that a writer must understand. Upgrade holdfast."""

    def __init__(self, session: str, kind: str, seq: int) -> None:
        super().__init__(
            f"session {session!r} can only be read: entry {seq} is of kind {kind!r}, which changes "
            "decisions and is not known to this version. Upgrade holdfast to write to it."
        )
        self.session, self.kind, self.seq = session, kind, seq


class OpenedToRead(HoldfastError):
    """The store was opened with `read_only=True`, so nothing is written to it."""


class NewerFormat(HoldfastError):
    """The stored format is newer than this version of holdfast. Upgrade it."""


class Corrupt(HoldfastError):
    """Stored bytes are damaged; nothing was changed. A retry does not help."""

    def __init__(self, where: str, why: str, *, line: int | None = None, seq: int | None = None) -> None:
        place = where + (f", line {line}" if line is not None else "") + (f", entry {seq}" if seq else "")
        super().__init__(f"{place}: {why}. Nothing was changed.")
        self.where, self.line, self.seq = where, line, seq


class LostBlob(HoldfastError):
    """A blob that an entry refers to is missing or damaged; the rest of the session is not affected.

    A retry helps only if the blob is restored. `entry` is the number of the entry, or None for a user value,
    whose key is in `where`.
    """

    def __init__(self, session: str, digest: str, why: str, *, entry: int | None, where: str = "") -> None:
        place = where or f"entry {entry}"
        super().__init__(f"session {session!r}, {place}: blob {digest} cannot be read: {why}")
        self.session, self.entry, self.where, self.digest, self.why = session, entry, place, digest, why


class BudgetSpent(HoldfastError):
    """The request would exceed a cap, and was not made. A retry needs a higher cap."""

    def __init__(self, session: str, cap: str, *, limit: float, spent: float, wanted: float = 0) -> None:
        more = f" and {wanted:g} more would be reserved" if wanted else ""
        super().__init__(f"session {session!r} has spent {spent:g} of {limit:g} {cap}{more}")
        self.session, self.cap, self.limit, self.spent, self.wanted = session, cap, limit, spent, wanted


class ModelError(HoldfastError):
    """A model gave no reply. `retryable` says whether a retry can help.

    `retry_after_s` is the wait that the provider asked for. `charged`: the provider may charge for the
    request nevertheless (the connection broke during the reply).
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
    """The object was closed, or belongs to another process. Open it again in this process."""


class StoreFailed(HoldfastError):
    """The disk or server failed; no acknowledged write is lost. A retry helps when the cause is gone.

    Entries that were not acknowledged stay in memory. The next call that waits for durability
    (`session.flush()`, `session.checkpoint()` …) writes them first, so a retry is safe.
    """


class StoreBusy(StoreFailed):
    """Another process kept the store locked for too long. A retry helps once it has finished."""


class StoreUnreachable(StoreFailed):
    """The server cannot be reached, or closed the connection before it answered. A retry helps later."""

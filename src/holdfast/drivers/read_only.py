"""A driver with which nothing is written, in front of any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..blobs.home import BlobHome, ReadOnlyHome, refuse_to_write
from ..core.codec import Page
from ..core.head import Head
from ..ids import HolderId, SessionId
from .contract import (
    Append,
    Beat,
    ClaimChange,
    Driver,
    DueFilter,
    Erasure,
    HeadFilter,
    InboxRow,
    Outcome,
    RunChunks,
    RunCursor,
    Tip,
)


class ReadOnlyDriver:
    """Hands on what reads, and refuses what writes."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.blobs: BlobHome = ReadOnlyHome(driver.blobs)

    def store_id(self) -> str:
        return self._driver.store_id()

    def server_s(self) -> float | None:
        return self._driver.server_s()

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        return self._driver.read(session, after, limit, said=said)

    def find_tip(self, session: SessionId) -> Tip | None:
        return self._driver.find_tip(session)

    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        return self._driver.list_tips(wanted, after, limit)

    def list_due(self, wanted: DueFilter, limit: int) -> Sequence[Tip]:
        return self._driver.list_due(wanted, limit)

    def list_runs(
        self, session: SessionId | None, after: RunCursor | None, limit: int
    ) -> Sequence[RunChunks]:
        return self._driver.list_runs(session, after, limit)

    def find_keyframe(self, session: SessionId) -> bytes | None:
        return self._driver.find_keyframe(session)

    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        return self._driver.read_inbox(session, after, limit)

    def find_beat(self, holder: HolderId) -> Beat | None:
        return self._driver.find_beat(holder)

    def list_holders(self) -> Sequence[tuple[HolderId, Beat | None]]:
        return self._driver.list_holders()

    def wait_for_work(self, timeout_s: float) -> None:
        self._driver.wait_for_work(timeout_s)

    def find_claim(self, key: str) -> str | None:
        return self._driver.find_claim(key)

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        refuse_to_write()

    def erase(self, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head) -> Outcome:
        refuse_to_write()

    def delete(self, session: SessionId, after: str) -> Outcome:
        refuse_to_write()

    def post(self, session: SessionId, item: bytes) -> int:
        refuse_to_write()

    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        refuse_to_write()

    def retire(self, holder: HolderId) -> None:
        refuse_to_write()

    def claim(self, change: ClaimChange) -> Outcome:
        refuse_to_write()

    def close(self) -> None:
        self._driver.close()


def reads_only(driver: Driver, home: BlobHome) -> BlobHome:
    """The home of a store with this driver: read-only if the driver is."""
    if not isinstance(driver, ReadOnlyDriver) or isinstance(home, ReadOnlyHome):
        return home
    return ReadOnlyHome(home)

"""The leases of a session, one after the other, and how each ended: what a timeline is divided by."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from .entries import Entry, LeaseReleased, LeaseTaken, SessionForked


class LeasePeriod(Struct, kw_only=True):
    """A lease from its acquisition to its end: `released`, `lost` (its holder died) or still `held`.

    One that was lost ended with the last entry of its holder.
    """

    holder: str
    name: str
    fence: int
    since: datetime
    until: datetime | None = None
    ended: Literal["released", "lost", "held"] = "held"


class LeasePeriods:
    """A fold over the entries of a journal. Of a fork, the leases of its origin are left out."""

    def __init__(self) -> None:
        self.rows: list[LeasePeriod] = []
        self._last_at: datetime | None = None

    def apply(self, entry: Entry) -> LeasePeriod | None:
        """Fold the next entry; the lease that it shows to be lost, if it does."""
        lost: LeasePeriod | None = None
        match entry.body:
            case SessionForked():
                self.rows.clear()
            case LeaseTaken(holder=holder, name=name):
                open = self._find_open()
                if open is not None and open.holder == holder:
                    open.ended, open.until = "released", entry.at
                else:
                    lost = self.lose()
                self.rows.append(LeasePeriod(holder=holder, name=name, fence=entry.seq, since=entry.at))
            case LeaseReleased():
                open = self._find_open()
                if open is not None:
                    open.ended, open.until = "released", entry.at
        self._last_at = entry.at
        return lost

    def lose(self) -> LeasePeriod | None:
        """The last holder is gone: its lease, unless it released it."""
        lost = self._find_open()
        if lost is not None:
            lost.ended, lost.until = "lost", self._last_at
        return lost

    def _find_open(self) -> LeasePeriod | None:
        last = self.rows[-1] if self.rows else None
        return last if last is not None and last.ended == "held" else None

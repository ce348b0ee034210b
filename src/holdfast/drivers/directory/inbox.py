"""A session's inbox: a file an item, named by its number.

The newest number must outlive its item, or the next item would get it again: a taken item's file is
removed, but the newest one's is only renamed, and emptied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ...system import files
from ...system.clock import utc_now
from ...system.files import find_bytes, list_names, make_directory, put, sync_data, sync_directory
from ..contract import InboxRow

_NAME = re.compile(r"([0-9]+)\.(json|taken)")


class _InboxFile(NamedTuple):
    number: int
    taken: bool
    name: str


class Inbox:
    """The inbox in one directory, which is made with the first item."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def posted(self) -> int:
        """The number of the newest item there ever was, or 0."""
        return max((item.number for item in self._items()), default=0)

    def post(self, item: bytes, scratch: Path) -> int:
        """Add an item; its number. Durable. Needs the session's lock."""
        number = self.posted() + 1
        make_directory(self.path)
        path = self.path / f"{number}.json"
        put(path, [item], scratch)
        # By itself, the kernel would give all items of a few milliseconds the same time.
        files.set_changed_at(path, utc_now())
        return number

    def restore(self, rows: Sequence[InboxRow], posted: int, scratch: Path) -> None:
        """Replace the items, and go on after the number `posted`. Durable. Needs the session's lock."""
        items = {f"{row.number}.json": row.item for row in rows}
        if posted and f"{posted}.json" not in items:
            items[f"{posted}.taken"] = b""
        if not items and not files.exists(self.path):
            return
        make_directory(self.path)
        # The newest number first: whatever is missing after a crash, no number is used again.
        for name in sorted(items, key=lambda name: int(name.partition(".")[0]), reverse=True):
            put(self.path / name, [items[name]], scratch, sync_name=False)
        for item in self._items():
            if item.name not in items:
                files.remove(self.path / item.name)
        sync_directory(self.path)

    def read(self, after: int, limit: int) -> list[InboxRow]:
        """Items with a number greater than `after`, in order."""
        rows: list[InboxRow] = []
        for item in sorted(self._items()):
            if item.taken or item.number <= after:
                continue
            if len(rows) >= limit:
                break
            # Missing if it was taken in the meantime.
            if (data := find_bytes(self.path / item.name)) is not None:
                rows.append(InboxRow(item.number, data))
        return rows

    def find_arrival(self, after: int) -> datetime | None:
        """When the oldest item with a number greater than `after` came."""
        for item in sorted(self._items()):
            if item.number > after and not item.taken:
                with suppress(FileNotFoundError):  # It was taken in the meantime.
                    return files.changed_at(self.path / item.name)
        return None

    def drop(self, upto: int, *, durable: bool = False) -> None:
        """Forget items up to this number. Needs the session's lock.

        It need not be `durable` to be right: a holder that sees one again knows that it was taken in. But
        what was said in an item must be gone when it is erased from the journal.
        """
        items = sorted(self._items())
        for item in items[:-1]:
            if item.number <= upto:
                files.remove(self.path / item.name)
        if items and items[-1].number <= upto:
            newest = self.path / items[-1].name
            if not items[-1].taken:
                newest = newest.with_suffix(".taken")
                files.rename(self.path / items[-1].name, newest)
            if durable or not items[-1].taken:
                _empty(newest, durable)
        if durable and items:
            sync_directory(self.path)

    def _items(self) -> list[_InboxFile]:
        matches = (_NAME.fullmatch(name) for name in list_names(self.path))
        return [_InboxFile(int(match[1]), match[2] == "taken", match[0]) for match in matches if match]


def _empty(path: Path, durable: bool) -> None:
    fd = files.open(path, files.O_WRONLY | files.O_CLOEXEC)
    try:
        files.truncate(fd, 0)
        if durable:
            sync_data(fd)
    finally:
        files.close(fd)

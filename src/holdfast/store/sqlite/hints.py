"""Noticing that another process has written something, without asking for what."""

from __future__ import annotations

import threading
import time
from typing import Final

from .connections import Connections

_LOOK_S: Final = 0.004
"""How often the counter of the database's changes is read, which takes microseconds."""


class Hints:
    """SQLite counts the changes that other connections make to the file."""

    def __init__(self, db: Connections) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._seen = -1

    def wait(self, timeout_s: float) -> None:
        """Return when the file has changed since the last time, and after `timeout_s` in any case."""
        deadline_s = time.monotonic() + timeout_s
        with self._lock, self._db.reading() as db:
            while True:
                # What another connection counts differs: in the worst case there is one look too many.
                version = int(db.pragma("data_version"))
                if version != self._seen:
                    self._seen = version
                    return
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return
                time.sleep(min(_LOOK_S, left_s))

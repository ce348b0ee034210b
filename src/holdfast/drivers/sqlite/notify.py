"""Noticing that somebody has posted something, in whichever process, without asking for what."""

from __future__ import annotations

from typing import Final

from ...system import threads
from ...system.clock import monotonic_s
from .connections import Connections, repeated

_LOOK_S: Final = 0.004
"""How often the counter of the database's changes is read, which takes microseconds."""


class Hints:
    """SQLite counts the changes that other connections make to the file; the file counts what is posted."""

    def __init__(self, db: Connections) -> None:
        self._db = db
        self._lock = threads.Lock()
        self._posts = -1

    def wait(self, timeout_s: float) -> None:
        """Return when something was posted since the last time, and after `timeout_s` in any case."""
        with self._lock:
            self._wait(monotonic_s() + timeout_s)

    @repeated
    def _wait(self, deadline_s: float) -> None:
        seen = -1
        with self._db.reading() as db:
            while not self._db.is_lost():
                version = int(db.pragma("data_version"))
                if version != seen:
                    seen = version
                    posts = int(db.execute("SELECT posts FROM store").get)
                    if posts != self._posts:
                        self._posts = posts
                        return
                left_s = deadline_s - monotonic_s()
                if left_s <= 0:
                    return
                threads.sleep(min(_LOOK_S, left_s))

"""Every boundary that a process passes on its way, to be counted, and to end or stop it there.

A boundary has a label and a number among those with the same label: which of two parallel calls comes first
may change from one time to the next, the labels do not. Tools and hooks pass theirs by `at`. `install` adds
those between the ledger and the disk: before a line of the ledger is recorded, before and after every commit,
claim, deletion and item for the inbox, and after every barrier.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.entries import KIND_OF, Body
from holdfast.drivers.contract import Append, ClaimChange, Driver, Outcome
from holdfast.session.writer import SessionWriter
from tests.drivers import kinds_of

ANY: Final = "any"
"""Instead of a label: the how manieth of all."""


class Point(NamedTuple):
    """A boundary, and the how manieth of its label."""

    label: str
    number: int


class _Path:
    """The boundaries that this process has passed."""

    def __init__(self) -> None:
        self.passed: list[Point] = []
        self._counts: Counter[str] = Counter()
        self._target: Point | None = None
        self._signal = signal.SIGKILL
        self._lock = threading.Lock()
        self.beating = threading.Lock()
        """Who is stopped in the middle of a heartbeat may have the database locked, and all others wait."""

    def arm(self, target: Point | None, signal_: signal.Signals = signal.SIGKILL) -> None:
        """Send this process the signal when it comes to the target."""
        self._target, self._signal = target, signal_

    def at(self, label: str) -> None:
        # Under the lock: nobody else in this process passes another one meanwhile.
        with self._lock:
            self._counts[label] += 1
            point = Point(label, self._counts[label])
            self.passed.append(point)
            if self._target in (point, Point(ANY, len(self.passed))):
                with self.beating:
                    # To this very thread, so that it does not get one step further.
                    signal.pthread_kill(threading.get_ident(), self._signal)


path = _Path()
"""Of this process: each is a child of its own."""
at = path.at

_LEDGER = ("tool.", "delegate.", "approval.", "inbox.", "checkpoint.", "session.rewound", "lease.renewed")


def install(driver: Driver) -> None:
    """Watch a driver, and every session of this process."""
    _watch_driver(driver)
    _watch_sessions()


def _watch_driver(driver: Driver) -> None:
    def commit(batch: Sequence[Append], *, wait: bool = True, real: Any = driver.commit) -> Sequence[Outcome]:
        # Which sessions share a commit may change from one time to the next, too.
        kinds = "+".join(kinds_of(batch[0])) if len(batch) == 1 else "of several sessions"
        done: Sequence[Outcome] = _around(f"commit {kinds}", lambda: real(batch, wait=wait))
        return done

    def claim(change: ClaimChange, real: Any = driver.claim) -> Outcome:
        done: Outcome = _around("claim", lambda: real(change))
        return done

    def post(session: str, item: bytes, real: Any = driver.post) -> int:
        number: int = _around("post", lambda: real(session, item))
        return number

    def delete(session: str, after: str, real: Any = driver.delete) -> Outcome:
        done: Outcome = _around("delete", lambda: real(session, after))
        return done

    def beat(*args: Any, real: Any = driver.beat) -> Any:
        with path.beating:
            return real(*args)

    for watched in (commit, claim, post, delete, beat):
        setattr(driver, watched.__name__, watched)


def _around(label: str, act: Callable[[], Any]) -> Any:
    at(f"before {label}")
    answer = act()
    at(f"after {label}")
    return answer


def _watch_sessions() -> None:
    here: Any = SessionWriter
    if here.flush.__module__ == __name__:  # It is watched already.
        return
    real_record, real_flush = SessionWriter.record_all, SessionWriter.flush

    def record_all(self: SessionWriter, entries: Sequence[tuple[Body, bytes | None]], **options: Any) -> None:
        kinds = [KIND_OF[type(body)] for body, _ in entries]
        if any(kind.startswith(_LEDGER) for kind in kinds):
            at(f"record {'+'.join(kinds)}")
        real_record(self, entries, **options)

    async def flush(self: SessionWriter) -> None:
        await real_flush(self)
        at("flushed")

    here.record_all, here.flush = record_all, flush

"""Ctrl-C for a test that runs in the main thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_interrupt() -> Iterator[Callable[[], None]]:
    """Gives a function for another thread: it raises `KeyboardInterrupt` in the main thread, once.

    It sends the signal until it is handled: one that comes just before the main thread waits for a lock is
    remembered by Python, but ends no wait.
    """
    handled = threading.Event()

    def interrupt(*_: Any) -> None:
        if not handled.is_set():
            handled.set()
            raise KeyboardInterrupt

    def press() -> None:
        while not handled.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            handled.wait(0.05)

    handler = signal.signal(signal.SIGINT, interrupt)
    try:
        yield press
    finally:
        signal.signal(signal.SIGINT, handler)

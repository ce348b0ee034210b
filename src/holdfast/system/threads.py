"""Threads, their locks and their sleeps.

Use it as `threads.Lock()`, not by importing single names: a simulator puts its own in their place.
"""

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import (
    Barrier,
    BoundedSemaphore,
    Condition,
    Event,
    Lock,
    RLock,
    Thread,
    current_thread,
    enumerate,
    get_ident,
    local,
    main_thread,
)
from time import sleep

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "CancelledError",
    "Condition",
    "Event",
    "Future",
    "Lock",
    "RLock",
    "SimpleQueue",
    "Thread",
    "ThreadPoolExecutor",
    "current_thread",
    "enumerate",
    "get_ident",
    "local",
    "main_thread",
    "sleep",
]

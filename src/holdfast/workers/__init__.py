"""Workers: processes that take sessions with something to do, on as many machines as share the store."""

from ..engine.heartbeat import Duty
from ..store.work_queue import WorkerInfo
from .job import WorkEvent
from .notifier import Notifier
from .worker import Worker

__all__ = [
    "Duty",
    "Notifier",
    "WorkEvent",
    "Worker",
    "WorkerInfo",
]

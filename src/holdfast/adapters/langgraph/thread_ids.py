"""Which session keeps a thread's namespace.

A thread id and a namespace are any text. Both are escaped into one session id, so that all namespaces of a
thread begin alike and both can be read off the id again. What would be too long is replaced by its digest;
the first line of the journal (`adapter.langgraph.named`) has the originals either way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from ...ids import SessionId, escape_id, label_of_original

_THREAD_CHARS = 100
_ID_CHARS = 200
_SEPARATOR = "|"


class ThreadNamespace(Struct, frozen=True):
    """A namespace of a thread; the root namespace is empty."""

    thread: str
    ns: str

    @property
    def session(self) -> SessionId:
        """The session that keeps it."""
        return _name(self.thread, self.ns)

    def __str__(self) -> str:
        return f"thread {self.thread!r}" + (f", namespace {self.ns!r}" if self.ns else "")


@lru_cache(maxsize=1024)
def _name(thread: str, ns: str) -> SessionId:
    prefix = thread_prefix(thread)
    name = f"{prefix}{escape_id(ns)}" if ns else prefix
    return SessionId(name if len(name) <= _ID_CHARS else f"{prefix}{escape_id(_digest(ns))}")


def thread_prefix(thread: str) -> str:
    """What the ids of all sessions of a thread begin with; no other thread's do."""
    # Quoted, so that the first separator is ours and a digest cannot be mistaken for a name.
    quoted = thread.replace("%", "%25").replace(_SEPARATOR, "%7c")
    prefix = escape_id(quoted + _SEPARATOR)
    return prefix if len(prefix) <= _THREAD_CHARS else escape_id(_digest(thread) + _SEPARATOR)


def _digest(text: str) -> str:
    return "%sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def fit_labels(wanted: Mapping[str, str]) -> dict[str, str]:
    """The originals as labels; empty ones are left out."""
    return {key: label_of_original(text) for key, text in wanted.items() if text}

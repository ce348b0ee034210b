"""The HTTP requests of a tool's body: their keys, what is noted of them, and whether any was sent.

`holdfast.http` tells them to the `RequestLog` of the attempt in whose body they are made.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

import anyio.to_thread

from ..core.effects import REQUEST, REQUESTS, Effect
from ..core.entries import ToolAnnotated
from ..errors import BadInput
from ..messages import Json
from ..redact import show_address
from ..reprs import name_of
from ..session.session import Session
from ..system import aio, threads
from .canonical import digest
from .outcome import as_json

log = logging.getLogger("holdfast")

Address: TypeAlias = tuple[str, str]
"""A method, and where its request goes."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})
"""Methods that change nothing at the server (RFC 9110, and QUERY)."""


class RequestLog:
    """The unsafe HTTP requests of one attempt at an effect.

    A request's key is made of the effect's key and of the request's place: its method, its host and path, and
    how many requests of that method went to that address before it in this attempt. So a body that makes its
    requests in order gives each the same key on every attempt, and so does one that makes requests to
    different addresses at once. Neither the query nor the content is part of the place: they often hold a
    time or a nonce, and a retry with another key would have its effect twice. A request that was surely not
    sent leaves its key to the next one with the same content: a body that tries again by itself keeps it.
    """

    def __init__(self, session: Session, row: Effect) -> None:
        self._session, self._issued = session, row.issued
        self._key, self._attempt = row.key, row.attempt
        self._loop, self._loop_thread = aio.current_loop(), threads.get_ident()
        self._lock = threads.Lock()
        self._counts: Counter[Address] = Counter()
        self._contents: dict[str, tuple[Address, str, bytes]] = {}
        """What was to be sent with each key."""
        self._free: list[str] = []
        """Keys of requests that were not sent."""
        self._sent: Counter[str] = Counter()
        """How many requests with this key were sent, or may have been."""
        self._unsent: list[Exception] = []
        self.has_ended = False
        """Whether the body has ended."""

    def take_key(self, method: str, url: str, content: bytes | None) -> str:
        """The key of the next request of this method to this address. `content` is None if it is a stream."""
        address = method, _address(url)
        with self._lock:
            key = self._find_unsent(address, url, content)
            if key is None:
                number = self._counts[address]
                self._counts[address] += 1
                # As a random UUID: the form that the most services accept.
                key = str(UUID(digest(self._key, "http", *address, str(number))[:32], version=4))
            if content is not None:
                self._contents[key] = address, url, content
        return key

    def take_again(self, key: str) -> None:
        """Keep the key for a request that has it already: no other one gets it."""
        with self._lock:
            if key in self._free:
                self._free.remove(key)

    def _find_unsent(self, address: Address, url: str, content: bytes | None) -> str | None:
        """The key of the same request, if it was not sent."""
        if content is None:
            return None
        same = address, url, content
        return next((key for key in self._free if self._contents[key] == same), None)

    def begin(self, method: str, url: str, key: str) -> int:
        """Note a request, durably, before it is sent; its number. Blocks."""
        if threads.get_ident() == self._loop_thread:
            raise BadInput(
                "an async tool made a request with a client that blocks the event loop, and a request is not "
                "sent before it is on disk: use an async client with AsyncTransport, or declare the tool "
                "with `def`"
            )
        return aio.wait_in_loop(self._loop, partial(self._begin, method, url, key))

    async def begin_async(self, method: str, url: str, key: str) -> int:
        """Note a request, durably, before it is sent; its number."""
        if threads.get_ident() == self._loop_thread:
            return await self._begin(method, url, key)
        # An event loop of the body's own, in another thread.
        return await anyio.to_thread.run_sync(partial(self.begin, method, url, key))

    async def _begin(self, method: str, url: str, key: str) -> int:
        noted = {"method": method, "url": show_address(url), "key": key, "attempt": self._attempt}
        self._record(noted)
        row = self._session.state.facts.effects.rows[self._issued]
        number = len(row.notes[REQUESTS]) - 1
        await self._session.flush()
        return number

    def send(self, key: str) -> None:
        """Count a request as sent: from now on it may be."""
        with self._lock:
            self._sent[key] += 1

    def answer(self, number: int, status: int) -> None:
        """Note the status of an answer. It is durable with the outcome of the call."""
        self._note_end(number, {"status": status})

    def fail(self, number: int, error: Exception) -> None:
        """Note that there was no answer."""
        self._note_end(number, {"error": name_of(type(error))})

    def take_back(self, number: int, error: Exception, key: str) -> None:
        """Note that a request was surely not sent after all."""
        with self._lock:
            self._sent[key] -= 1
            if not self._sent[key] and key in self._contents:
                self._free.append(key)
        self._note_end(number, {"error": name_of(type(error)), "sent": False})

    def excuse(self, error: Exception) -> None:
        """Keep the error of a request that was surely not sent: a body that ends with it did nothing."""
        self._unsent.append(error)

    def explains(self, error: BaseException) -> bool:
        """Whether a body that ended with this error has surely sent nothing: the error, or the one that it
        was raised from, is that of a request that was not sent, and no other request was."""
        with self._lock:
            return bool(self._unsent) and not self._sent.total() and self._is_excused(error)

    def _is_excused(self, error: BaseException) -> bool:
        seen: list[BaseException] = []
        one: BaseException | None = error
        while one is not None and not any(one is other for other in seen):
            if any(one is other for other in self._unsent):
                return True
            if isinstance(one, BaseExceptionGroup):
                return all(self._is_excused(part) for part in one.exceptions)
            seen.append(one)
            one = one.__cause__
        return False

    def _note_end(self, number: int, noted: dict[str, Json]) -> None:
        work = partial(self._record_quietly, {"n": number, **noted})
        if threads.get_ident() == self._loop_thread:
            work()
        else:
            with suppress(RuntimeError):  # The loop has ended: the request stays without an answer.
                aio.call_in_loop(self._loop, copy_context().run, work)

    def _record_quietly(self, noted: dict[str, Json]) -> None:
        # An answer that cannot be noted must not hide the answer.
        try:
            self._record(noted)
        except Exception as error:
            log.debug("the answer to a request of entry %d is not noted: %s", self._issued, error)

    def _record(self, noted: dict[str, Json]) -> None:
        self._session._writer.record(ToolAnnotated(issued=self._issued, notes={REQUEST: as_json(noted)}))


def _address(url: str) -> str:
    """Host, port and path: what a request is sent to, without what may differ between attempts."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or ''}:{parts.port or parts.scheme}{parts.path}"
    except ValueError:  # Not a URL. Its sender will say so.
        return url.partition("?")[0]

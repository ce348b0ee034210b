"""A request of a tool's body, from its key to its answer; the same for every library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from ..system import threads
from ..tools.executor import find_requests
from ..tools.http_requests import SAFE_METHODS, RequestLog

KEY_HEADER: Final = "Idempotency-Key"

_given: WeakKeyDictionary[Any, tuple[RequestLog, str]] = WeakKeyDictionary()
"""The requests that were given a key here: in which attempt, and which key. A program may send a request
object again, in another call or outside of tools, where that key would be wrong."""
_lock: Final = threads.Lock()


class TrackedRequest:
    """An unsafe request in the body of a tool with side effects."""

    def __init__(self, log: RequestLog, method: str, url: str, key: str) -> None:
        self._log = log
        self._method, self._url, self._key = method, url, key
        self._number = 0

    @classmethod
    def find(
        cls,
        request: Any,
        method: str,
        url: str,
        headers: MutableMapping[str, Any],
        header: str,
        content: Callable[[], bytes | None],
    ) -> TrackedRequest | None:
        """Give the request its key. None if it is to be sent as it is: outside of a body with side effects,
        and with a safe method. `content` gives what it sends, or None if that is a stream.

        A request that has the header keeps it, be it the caller's own, or the one of a request of this
        attempt that is sent again: by authentication, by a redirect, by a retry.
        """
        log = find_requests()
        with _lock:
            known = _given.get(request)
            if known is not None and known[0] is not log:
                del _given[request]
                if headers.get(header) == known[1]:
                    del headers[header]
        method = method.upper()
        if log is None or method in SAFE_METHODS:
            return None
        key = headers.get(header)
        if key is None:
            key = headers[header] = log.take_key(method, url, content())
            with _lock:
                _given[request] = log, key
        key = key.decode("latin-1") if isinstance(key, bytes) else str(key)
        log.take_again(key)
        return cls(log, method, url, key)

    def begin(self, *, excuses: bool) -> None:
        """Note it, durably: it may be sent on return. Blocks."""
        with self._excusing(excuses):
            self._number = self._log.begin(self._method, self._url, self._key)
        self._log.send(self._key)

    async def begin_async(self, *, excuses: bool) -> None:
        """Note it, durably: it may be sent on return."""
        with self._excusing(excuses):
            self._number = await self._log.begin_async(self._method, self._url, self._key)
        self._log.send(self._key)

    @contextmanager
    def sending(self, is_unsent: Callable[[Exception], bool], *, excuses: bool) -> Iterator[None]:
        """Note the error of the block, which sends it. `excuses`: an error that says that it was not sent
        counts as if nothing was done."""
        try:
            yield
        except Exception as error:
            if not is_unsent(error):
                self._log.fail(self._number, error)
                raise
            self._log.take_back(self._number, error, self._key)
            if excuses:
                self._log.excuse(error)
            raise

    def answer(self, status: int) -> None:
        """Note the status of its answer."""
        self._log.answer(self._number, status)

    @contextmanager
    def _excusing(self, excuses: bool) -> Iterator[None]:
        """What could not be noted is not sent."""
        try:
            yield
        except Exception as error:
            if excuses:
                self._log.excuse(error)
            raise

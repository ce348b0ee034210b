"""Lines from a pipe and into one, with bounds on what is held in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from ..limits import MCP_MESSAGE_BYTES_MAX
from ..system import aio, files

_READ_BYTES = 1 << 16
_WRITE_BYTES = 4096
"""What a pipe takes at once, when it says that it takes something."""


class LineTooLong(Exception):
    """A line was longer than the limit, and was left out."""


class PipeClosed(Exception):
    """The other side of a pipe is gone. `is_sent`: it may have got a part."""

    def __init__(self, *, is_sent: bool) -> None:
        super().__init__("the other side closed the pipe")
        self.is_sent = is_sent


async def iter_lines(
    read: Callable[[], Awaitable[bytes]], *, bytes_max: int = MCP_MESSAGE_BYTES_MAX
) -> AsyncIterator[bytes | LineTooLong]:
    """Each line with its end, as soon as it is there; what follows the last line end counts as one.

    A line that is longer than the limit is left out, and a `LineTooLong` stands in its place.
    """
    buffer = bytearray()
    looked, is_skipping = 0, False
    while True:
        end = buffer.find(b"\n", looked)
        if end >= 0:
            line = bytes(buffer[: end + 1])
            del buffer[: end + 1]
            looked = 0
            if is_skipping:
                is_skipping = False
                yield LineTooLong()
            else:
                yield line
            continue
        looked = len(buffer)
        if looked > bytes_max:
            is_skipping = True
        if is_skipping:
            buffer.clear()
            looked = 0
        chunk = await read()
        if not chunk:
            if is_skipping:
                yield LineTooLong()
            elif buffer.strip():
                yield bytes(buffer) + b"\n"
            return
        buffer += chunk


class OwnPipe:
    """A descriptor of this process, such as its stdin, which other processes may share."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._polls = True
        """Whether the event loop can wait for it. It cannot for a file."""
        self._threads = anyio.CapacityLimiter(1)
        self._is_torn = False
        """Whether half a message was written: what follows it could not be read."""

    async def read(self) -> bytes:
        """What is there; nothing at the end."""
        while True:
            try:
                if await self._wait(anyio.wait_readable):
                    return files.read(self._fd, _READ_BYTES)
                return await self._in_thread(partial(files.read, self._fd, _READ_BYTES))
            except BlockingIOError:
                continue

    async def write(self, data: bytes) -> None:
        """Write all of it, or raise `PipeClosed`. A reader that is slow keeps the caller waiting."""
        if self._is_torn:
            raise PipeClosed(is_sent=False)
        left = memoryview(data)
        try:
            while left:
                try:
                    if await self._wait(anyio.wait_writable):
                        written = files.write(self._fd, left[:_WRITE_BYTES])
                    else:
                        written = await self._in_thread(partial(files.write, self._fd, left[:_READ_BYTES]))
                except BlockingIOError:
                    continue
                left = left[written:]
        except OSError as error:
            raise PipeClosed(is_sent=len(left) < len(data)) from error
        finally:
            self._is_torn = 0 < len(left) < len(data)

    async def _wait(self, wait: Callable[[int], Awaitable[None]]) -> bool:
        if self._polls:
            try:
                await wait(self._fd)
            except PermissionError:
                self._polls = False
        return self._polls

    async def _in_thread(self, call: Callable[[], bytes | int]) -> bytes | int:
        return await aio.run_in_daemon_thread(call, self._threads)


class ChildPipes:
    """The pipes of a server that this process has started."""

    def __init__(self, to_server: ByteSendStream, from_server: ByteReceiveStream) -> None:
        self._to_server, self._from_server = to_server, from_server

    async def read(self) -> bytes:
        """What is there; nothing at the end."""
        try:
            return await self._from_server.receive(_READ_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def write(self, data: bytes) -> None:
        """Write all of it, or raise `PipeClosed`."""
        try:
            await self._to_server.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise PipeClosed(is_sent=True) from error

    async def close(self) -> None:
        """Tell the server that there is no more to come."""
        await self._to_server.aclose()

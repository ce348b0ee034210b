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


class OwnPipes:
    """Two descriptors of this process, such as its stdin and stdout, which other processes may share."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._files: set[int] = set()
        """Those for which no event loop can wait: they are files."""
        self._threads = anyio.CapacityLimiter(2)
        self._is_torn = False
        """Whether half a message was written: what follows it could not be read."""

    async def read(self) -> bytes:
        """What is there; nothing at the end."""
        while True:
            try:
                if await self._wait(anyio.wait_readable, self._source):
                    return files.read(self._source, _READ_BYTES)
                return await aio.run_in_daemon_thread(
                    partial(files.read, self._source, _READ_BYTES), self._threads
                )
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
                    if await self._wait(anyio.wait_writable, self._sink):
                        written = files.write(self._sink, left[:_WRITE_BYTES])
                    else:
                        written = await aio.run_in_daemon_thread(
                            partial(files.write, self._sink, left[:_READ_BYTES]), self._threads
                        )
                except BlockingIOError:
                    continue
                left = left[written:]
        except OSError as error:
            raise PipeClosed(is_sent=len(left) < len(data)) from error
        finally:
            self._is_torn = 0 < len(left) < len(data)

    async def _wait(self, wait: Callable[[int], Awaitable[None]], fd: int) -> bool:
        """Wait for a descriptor; False if nothing can."""
        if fd not in self._files:
            try:
                await wait(fd)
            except PermissionError:
                self._files.add(fd)
        return fd not in self._files


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

"""Lines of any length, from pipes and files."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from holdfast.mcp_proxy.pipes import LineTooLong, OwnPipes, PipeClosed, iter_lines


async def read(chunks: list[bytes], bytes_max: int = 10) -> list[bytes | None]:
    """The lines in these chunks; None for one that is too long."""
    left = list(chunks)

    async def next_chunk() -> bytes:
        await anyio.lowlevel.checkpoint()
        return left.pop(0) if left else b""

    lines = iter_lines(next_chunk, bytes_max=bytes_max)
    return [None if isinstance(line, LineTooLong) else line async for line in lines]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a\n", b"b\n"]),
        ([b"a", b"b\nc", b"\n"], [b"ab\n", b"c\n"]),
        ([b"a\r\n", b"\n", b" \n"], [b"a\r\n", b"\n", b" \n"]),
        ([b"last"], [b"last\n"]),
        ([b"x" * 11, b"x" * 11, b"\nb\n"], [None, b"b\n"]),
        ([b"x" * 11], [None]),
        ([b"x" * 10 + b"\n"], [b"x" * 10 + b"\n"]),
        ([b"x" * 11, b"\n", b"y" * 12, b"y\nz\n"], [None, None, b"z\n"]),
        ([], []),
    ],
)
async def test_lines_come_whole_and_those_that_are_too_long_are_left_out(
    chunks: list[bytes], lines: list[bytes | None]
) -> None:
    """However they are cut; what follows a long one is read."""
    assert await read(chunks) == lines


async def test_from_a_file_and_to_a_file(tmp_path: Path) -> None:
    """For which no event loop can wait."""
    (tmp_path / "in").write_bytes(b"a\nb\n")
    source, sink = os.open(tmp_path / "in", os.O_RDONLY), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    pipes = OwnPipes(source, sink)
    assert [line async for line in iter_lines(pipes.read)] == [b"a\n", b"b\n"]
    await pipes.write(b"x" * 100_000)
    os.close(source)
    os.close(sink)
    assert (tmp_path / "out").stat().st_size == 100_000


async def test_a_full_pipe_makes_the_writer_wait() -> None:
    """Nothing more is held in memory than the message."""
    source, sink = os.pipe()
    pipes = OwnPipes(source, sink)
    done = False

    async def write() -> None:
        nonlocal done
        await pipes.write(b"x" * 1_000_000)
        done = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert not done
        left = 1_000_000
        while left:
            left -= len(await pipes.read())
    assert done
    os.close(source)
    os.close(sink)


async def test_nothing_follows_half_of_a_message() -> None:
    """A reader could make nothing of it."""
    source, sink = os.pipe()
    pipes = OwnPipes(source, sink)
    with anyio.CancelScope() as scope:

        async def stop() -> None:
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipes.write, b"x" * 1_000_000)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            await stop()
    with pytest.raises(PipeClosed):
        await pipes.write(b"next")
    os.close(source)
    os.close(sink)


async def test_a_pipe_without_a_reader_is_closed() -> None:
    """And the writer is told."""
    source, sink = os.pipe()
    os.close(source)
    with pytest.raises(PipeClosed) as caught:
        await OwnPipes(0, sink).write(b"x")
    assert not caught.value.is_sent
    os.close(sink)

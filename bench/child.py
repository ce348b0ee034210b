"""One subject, in a process of its own, which does what it is told, line by line, and answers in JSON lines.

    python -m bench.child grow|read|take|hold SUBJECT --directory DIR [--postgres URL] …

`grow` takes steps in one session, and loads it from the open store; `read` opens the same place anew for each
load; `take` takes steps in many sessions for a while; `hold` opens many sessions and says how much memory
that took. A process that waits for its next word does nothing: so several of them can take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

import anyio.to_thread
import msgspec

from bench.figures import Rate, Ready, Size, Times
from bench.subjects.catalogue import Subject, get_subject
from bench.subjects.contract import Batches, Peeks, Place, Recorder
from bench.texts import pairs


def say(what: msgspec.Struct) -> None:
    """Answer the process that started this one."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def hear() -> list[str]:
    """Wait for the next line; empty at the end."""
    line: str = await anyio.to_thread.run_sync(sys.stdin.readline)
    return line.split()


async def time_ms(work: Awaitable[object]) -> float:
    """Milliseconds that it takes."""
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


async def grow(recorder: Recorder, place: Place) -> None:
    """`step N`: each step's time. `load`, `peek`: from the open store."""
    await recorder.open(place, 1)
    source, steps = pairs(), 0
    say(Ready())
    while words := await hear():
        match words:
            case ["step", count]:
                texts = [next(source) for _ in range(int(count))]
                say(Times([await time_ms(recorder.step(0, *pair)) for pair in texts]))
                steps += len(texts)
            case ["load", _]:
                say(Times([await _load(recorder, steps)]))
            case ["peek", _]:
                say(Times([await _peek(recorder)]))
    await recorder.close()


async def read(subject: Subject, place: Place) -> None:
    """`load N`, `peek N`: the time to open what has so many steps anew, and the time to read it then."""
    say(Ready())
    while words := await hear():
        what, steps = words
        recorder = subject.recorder()
        gc.collect()
        opening = await time_ms(recorder.reopen(place))
        reading = await (_load(recorder, int(steps)) if what == "load" else _peek(recorder))
        await recorder.close()
        say(Times([opening, reading]))


async def _load(recorder: Recorder, steps: int) -> float:
    gc.collect()
    began = time.perf_counter()
    found = await recorder.load(0)
    took = (time.perf_counter() - began) * 1000
    # What a tool that only reads returned last may still be on its way.
    assert 2 * steps - found in (0, 1), f"{found} messages after {steps} steps"
    return took


async def _peek(recorder: Recorder) -> float:
    assert isinstance(recorder, Peeks), "only ours do"
    gc.collect()
    return await time_ms(recorder.peek(0))


async def take(recorder: Recorder, place: Place, sessions: int, *, batch: bool) -> None:
    """`take SECONDS`: steps of all sessions at once, one after another in each."""
    await recorder.open(place, sessions)
    source = pairs()
    say(Ready())
    while words := await hear():
        seconds, steps, began = float(words[1]), 0, time.perf_counter()

        async def drive(session: int) -> int:
            count = 0
            while time.perf_counter() - began < seconds:  # noqa: B023
                await recorder.step(session, *next(source))
                count += 1
            return count

        if batch:
            assert isinstance(recorder, Batches), "only the floor does"
            while time.perf_counter() - began < seconds:
                await recorder.step_all([next(source) for _ in range(sessions)])
                steps += sessions
        else:
            steps = sum(await asyncio.gather(*map(drive, range(sessions))))
        say(Rate(steps, time.perf_counter() - began))
    await recorder.close()


def resident_bytes() -> int:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def hold(recorder: Recorder, place: Place, sessions: int) -> None:
    """Open the sessions, take a step in each, and keep them."""
    gc.collect()
    before = resident_bytes()
    await recorder.open(place, sessions)
    source = pairs()
    for session in range(sessions):
        await recorder.step(session, *next(source))
    gc.collect()
    say(Size(sessions, resident_bytes() - before))
    await recorder.close()


async def run(options: argparse.Namespace) -> None:
    """Do what was asked for."""
    subject = get_subject(options.subject)
    place = Place(options.directory, options.postgres, options.prefix)
    match options.what:
        case "grow":
            await grow(subject.recorder(), place)
        case "read":
            await read(subject, place)
        case "take":
            await take(subject.recorder(), place, options.sessions, batch=options.batch)
        case _:
            await hold(subject.recorder(), place, options.sessions)


def main() -> None:
    """Parse, and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=("grow", "read", "take", "hold"))
    parser.add_argument("subject")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--postgres", default="")
    parser.add_argument("--prefix", default="s")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--batch", action="store_true")
    # Some subjects open a file for each session and thread.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

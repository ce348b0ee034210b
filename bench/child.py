"""One measurement of one subject, in a process of its own. What it prints, JSON line by line, is the result.

    python -m bench.child grow|take|hold SUBJECT --directory DIR [--postgres URL] …

`grow` takes steps in one session and stops at marks; `take` takes steps in many sessions for a while; `hold`
opens many sessions and says how much memory that took. The last two wait for a line on their input before
they begin, and for another before they close: so syncs can be counted, and several of them can begin at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread
import msgspec

from bench.figures import Mark, Rate, Ready, Size, Stop
from bench.subjects.catalogue import get_subject
from bench.subjects.contract import Batches, Place, Recorder
from bench.texts import pairs

LOADS = 3
"""The median of so many is the time to load."""


def say(what: msgspec.Struct) -> None:
    """Tell whoever started this."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def wait_for_word() -> None:
    """Until a line comes."""
    await anyio.to_thread.run_sync(sys.stdin.readline)


async def grow(recorder: Recorder, place: Place, marks: Sequence[int], limits: tuple[float, float]) -> None:
    """One session, as far as the limits allow: no mark after the first, no step after the second, and
    no mark that could not be reached even if steps became no slower."""
    soft_s, hard_s = limits
    source, times, spent = pairs(), list[float](), 0.0
    for mark in marks:
        if spent > soft_s:
            say(Stop(len(times), f"{soft_s:g} s were over"))
            return
        recent = times[-share_of(times) :]
        if recent and spent + statistics.median(recent) * (mark - len(times)) > hard_s:
            say(Stop(len(times), f"{mark:,} steps would take more than {hard_s:g} s"))
            return
        while len(times) < mark:
            first, second = next(source)
            began = time.perf_counter()
            await recorder.step(0, first, second)
            times.append(time.perf_counter() - began)
            spent += times[-1]
            if spent > hard_s:
                say(Stop(len(times), f"{hard_s:g} s were over"))
                return
        say(await look(recorder, place, times))


def share_of(times: Sequence[float]) -> int:
    """5 %."""
    return max(1, len(times) // 20)


async def look(recorder: Recorder, place: Place, times: Sequence[float]) -> Mark:
    """The figures of the session so far."""
    share = share_of(times)
    loads: list[float] = []
    for _ in range(LOADS):
        gc.collect()
        began = time.perf_counter()
        found = await recorder.load(0)
        loads.append(time.perf_counter() - began)
        # What a tool that only reads returned last may still be on its way.
        assert 2 * len(times) - found in (0, 1), f"{found} messages after {len(times)} steps"
    return Mark(
        steps=len(times),
        first_ms=statistics.median(times[:share]) * 1000,
        last_ms=statistics.median(times[-share:]) * 1000,
        total_s=sum(times),
        load_ms=statistics.median(loads) * 1000,
        disk_bytes=measure_disk(place),
    )


def measure_disk(place: Place) -> int:
    """Files, or a database. In a process of its own: another SQLite library here would break the locks of the
    subject's."""
    command = [sys.executable, "-m", "bench.disk", str(place.directory), place.postgres]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


async def take(recorder: Recorder, sessions: int, seconds: float, *, batch: bool) -> None:
    """Steps of all sessions at once, one after another in each."""
    source, steps = pairs(), 0
    say(Ready())
    await wait_for_word()
    began = time.perf_counter()

    async def drive(session: int) -> None:
        nonlocal steps
        while time.perf_counter() - began < seconds:
            await recorder.step(session, *next(source))
            steps += 1

    if batch:
        assert isinstance(recorder, Batches), "only the floor does"
        while time.perf_counter() - began < seconds:
            await recorder.step_all([next(source) for _ in range(sessions)])
            steps += sessions
    else:
        async with asyncio.TaskGroup() as tasks:
            for session in range(sessions):
                tasks.create_task(drive(session))
    say(Rate(steps, time.perf_counter() - began))
    await wait_for_word()


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


async def run(options: argparse.Namespace) -> None:
    """What was asked for."""
    recorder = get_subject(options.subject).recorder()
    place = Place(options.directory, options.postgres)
    if options.what == "hold":
        await hold(recorder, place, options.sessions)
    else:
        await recorder.open(place, options.sessions)
        if options.what == "grow":
            await grow(recorder, place, options.marks, options.limits)
        else:
            await take(recorder, options.sessions, options.seconds, batch=options.batch)
    await recorder.close()


def main() -> None:
    """Parse, and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=("grow", "take", "hold"))
    parser.add_argument("subject")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--postgres", default="")
    parser.add_argument("--marks", type=int, nargs="+", default=[100])
    parser.add_argument("--limits", type=float, nargs=2, default=[60.0, 60.0])
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--batch", action="store_true")
    # Some subjects open a file for each session and thread.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

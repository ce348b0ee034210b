"""Measures holdfast, its peers and the raw floor side by side, and writes the page.

    python -m bench [SECTION …] [--quick] [--subjects NAME …] [--renew] [--postgres URL] [--directory DIR]

`make bench` runs it in the environment in which the peers are installed. Without some of them their rows say
so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from bench import machine
from bench.figures import Results, Section
from bench.page import page_lines, write_page
from bench.plan import FULL, QUICK
from bench.runner import ROOT, Failed, Runner, last_error
from bench.sections.growth import count_syncs, measure_growth
from bench.sections.scripts import (
    kill_and_count,
    measure_dispatch,
    measure_fleet,
    measure_proxy,
    time_crash_tests,
)
from bench.sections.standing_costs import measure_memory, measure_startup
from bench.sections.throughput import measure_throughput
from bench.sections.turns import measure_turns
from bench.server import Server, serve
from bench.subjects.catalogue import SUBJECTS, Subject

Measure: TypeAlias = Callable[[Runner, Results, Callable[[str], None]], None]

SECTIONS: Final[dict[str, Measure]] = {
    "startup": measure_startup,
    "dispatch": measure_dispatch,
    "proxy": measure_proxy,
    "turns": measure_turns,
    "growth": measure_growth,
    "syncs": count_syncs,
    "throughput": measure_throughput,
    "memory": measure_memory,
    "fleet": measure_fleet,
    "crashes": kill_and_count,
    "crash_tests": time_crash_tests,
}


def measure(name: str, runner: Runner, results: Results) -> None:
    """One section. Whatever goes wrong in it is on the page, and the others go on."""
    problems: list[str] = []

    def note(problem: str) -> None:
        problems.append(problem)
        print(f"  {problem}", flush=True)

    print(f"{name} …", flush=True)
    began = time.monotonic()
    try:
        SECTIONS[name](runner, results, note)
    except Failed as failure:
        note(str(failure))
    except Exception as error:
        note(_describe(error))
    seconds = time.monotonic() - began
    results.sections.append(Section(name, seconds, problems))
    print(f"{name}: {seconds:.0f} s", flush=True)


def _describe(error: Exception) -> str:
    return last_error("".join(traceback.format_exception(error)).encode())


def start_server(opened: ExitStack, options: argparse.Namespace, results: Results) -> Server | None:
    """The server, or a line on the page."""
    try:
        server = opened.enter_context(serve(options.postgres, options.directory))
    except Exception as error:
        results.sections.append(Section("PostgreSQL", 0.0, [_describe(error)]))
        return None
    results.versions["PostgreSQL"] = server.version
    return server


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page, the plots and the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="within five minutes")
    parser.add_argument("--subjects", nargs="+", help="only those whose names begin so")
    parser.add_argument("--postgres", help="a server to measure, in place of one that is started")
    parser.add_argument("--directory", type=Path, help="where to write (the temporary directory)")
    parser.add_argument("--results", type=Path, help="where the page goes (bench; printed, of a part)")
    parser.add_argument(
        "--renew", action="store_true", help="put what is measured into the results there are"
    )
    parser.add_argument("--page", action="store_true", help="write the page anew from results.json")
    options = parser.parse_args(arguments)
    part = bool(options.sections or options.subjects)
    folder = options.results or (None if part and not options.renew else ROOT / "bench")
    if options.renew and options.subjects:
        parser.error("--renew takes whole sections: rows that were not measured in turns do not compare")
    if options.page:
        folder = options.results or ROOT / "bench"
        write_page(_read(folder), folder)
        return
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(SECTIONS)}")
    subjects = tuple(
        one for one in SUBJECTS if not options.subjects or one.name.startswith(tuple(options.subjects))
    )
    results = measure_all(options, subjects)
    if folder is not None and options.renew:
        before = _read(folder)
        before.renew(results)
        results = before
    if folder is None:
        print("\n".join(page_lines(results, [])))
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    write_page(results, folder)
    print(f"written: {folder / 'results.md'}", file=sys.stderr)


def _read(folder: Path) -> Results:
    return msgspec.json.decode((folder / "results.json").read_bytes(), type=Results)


def measure_all(options: argparse.Namespace, subjects: tuple[Subject, ...]) -> Results:
    """The chosen sections, one after another."""
    with ExitStack() as opened:
        folder = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.directory))
        )
        folder.chmod(0o755)
        whole = not (options.sections or options.subjects)
        command = f"make bench{' QUICK=1' if options.quick else ''}" if whole else "python -m bench, in part"
        results = Results(
            about=machine.describe(folder, command),
            versions=machine.versions({one.package for one in subjects}),
            quick=options.quick,
        )
        server = start_server(opened, options, results)
        runner = Runner(QUICK if options.quick else FULL, folder, server, subjects)
        for name in options.sections or SECTIONS:
            try:
                measure(name, runner, results)
            except KeyboardInterrupt:  # What was measured is not lost.
                results.sections.append(Section(name, 0.0, ["interrupted, and whatever comes after it"]))
                break
    return results


if __name__ == "__main__":
    main()

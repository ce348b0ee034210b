"""The parts that are scripts of their own, and also run by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.figures import Call, Fleet, Results, Table
from bench.runner import ROOT, Failed, Runner, last_error

LIMIT_S = 600


def measure_dispatch(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """What a dispatch costs beyond the tool itself."""
    found = run_script(runner, "dispatch.py", ["--directory", str(runner.directory)])
    results.dispatch = msgspec.json.decode(found, type=dict[str, list[Call]])


def measure_proxy(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """What the MCP proxy adds to a call."""
    found = run_script(runner, "proxy.py", ["--directory", str(runner.directory)])
    results.proxy = msgspec.json.decode(found, type=dict[str, list[float]])


def measure_fleet(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """How long submitted work waits."""
    found = run_script(runner, "fleet.py", ["--directory", str(runner.directory)])
    waits = dict[str, list[float]]
    results.fleet.append(Fleet("SQLite", msgspec.json.decode(found, type=waits)))
    if runner.server is None:
        note("PostgreSQL: there is none")
        return
    with runner.server.database() as url:
        found = run_script(runner, "fleet.py", ["--store", url])
    results.fleet.append(Fleet("PostgreSQL", msgspec.json.decode(found, type=waits)))


def kill_and_count(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """What happens twice, or never, after a crash."""
    if not (ROOT / "bench" / "crashes.py").exists():
        note("crashes.py is not there")
        return
    results.crashes = msgspec.json.decode(run_script(runner, "crashes.py", []), type=Table)


def time_crash_tests(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """How long a crash test of 300 boundaries takes."""
    results.crash_tests = msgspec.json.decode(run_script(runner, "crash_tests.py", []), type=Table)


def run_script(runner: Runner, script: str, options: Sequence[str]) -> bytes:
    """What a script wrote as JSON."""
    figures = runner.directory / Path(script).with_suffix(".json")
    quick = ["--quick"] if runner.plan.quick else []
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "bench" / script), *options, *quick, "--json", str(figures)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{script} took more than {LIMIT_S} s") from error
    finally:
        # With whomever it started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise Failed(f"{script}: {last_error(errors) or f'ended with status {process.returncode}'}")
    return figures.read_bytes()

"""Agents that are interrupted: by Ctrl-C, in the middle of a stream, and by each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ...crash.fork_server import DEADLINE_S, ROOT, Warm, poll
from ..boundaries import Point
from ..effect_log import World
from .worker import follow, listen, look, work


def _landed(folder: Path) -> list[str]:
    return [deed.result for deed in World(folder / "world").deeds("landed")]


def test_ctrl_c_lets_a_running_effect_end_and_begins_no_other(
    warm: Warm, scheme: str, quick_path: Path
) -> None:
    """It is recorded, the session is given back, and whoever resumes it goes on from there."""
    place = str(quick_path)
    with warm.child(work, place, scheme, "carve") as child:
        assert child.hear() == "carve"
        child.kill(signal.SIGINT)
        assert child.hear() == "interrupted"
        (quick_path / "carve").touch()
        assert child.failure().kind == "KeyboardInterrupt"
    assert _landed(quick_path) == ["carve 1"]
    left = warm.call(look, place, scheme)
    assert (left["status"], left["held"]) == ("cancelled", False)
    assert (left["effects"]["call_0"], left["effects"]["call_1"]) == ("completed", "discarded")
    assert warm.call(work, place, scheme, None) == {"status": "completed", "output": "all carved"}
    assert _landed(quick_path) == ["carve 1", "carve 2"]
    assert warm.call(look, place, scheme)["roles"] == ["user", "assistant", "tool", "assistant"]


def _interrupt(process: subprocess.Popen[bytes]) -> bool:
    process.send_signal(signal.SIGINT)
    return process.poll() is not None


@pytest.mark.parametrize("tool", ["hang", "hang_in_thread"])
def test_ctrl_c_twice_leaves_at_once(warm: Warm, quick_path: Path, tool: str) -> None:
    """Although the tool hangs and would have an hour more; whoever resumes finds out what became of it."""
    command = [sys.executable, "-m", "tests.matrix.agents.worker", str(quick_path), tool]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    log_path = quick_path / "log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        poll((quick_path / "begun").exists, "the tool")
        process.send_signal(signal.SIGINT)
        poll((quick_path / "interrupted").exists, "the first signal")
        process.send_signal(signal.SIGINT)
        poll(lambda: "KeyboardInterrupt" in log_path.read_text(), "the second signal")
        if tool == "hang_in_thread":
            # We have left. Python itself still waits for the thread, until it is interrupted, too.
            poll(lambda: _interrupt(process), "Python", pause_s=0.1)
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    outcome = warm.call(work, str(quick_path), "sqlite", None)
    assert outcome == {"status": "completed", "output": "hung"}
    assert _landed(quick_path) == [f"{tool} 1"]


def test_a_kill_in_the_middle_of_a_stream_leaves_whole_replies(
    warm: Warm, scheme: str, quick_path: Path
) -> None:
    """Who follows from another process sees each reply once, and whole; who resumes hears all pieces anew."""
    place = str(quick_path)
    with warm.child(listen, place, scheme, "tell", Point("model: a piece", 3)) as child:
        assert child.outcome() is None
    with warm.child(follow, place, scheme) as follower:
        with warm.child(listen, place, scheme, None, Point("model: a piece", 4)) as child:
            assert child.outcome() is None
        assert warm.call(listen, place, scheme, None) == ["a ", "story ", "of ", "many ", "words"]
        assert follower.result() == ["", "a story of many words"]


def test_two_processes_cannot_run_one_session(warm: Warm, scheme: str, quick_path: Path) -> None:
    """The second is told who has it; the first is not disturbed."""
    place = str(quick_path)
    with warm.child(work, place, scheme, "gate") as first:
        assert first.hear() == "gate"
        for message in ("me, too", None):
            with warm.child(work, place, scheme, message) as second:
                failure = second.failure()
                assert (failure.kind, str(first.pid) in failure.text) == ("LeaseHeld", True), failure
        (quick_path / "gate").touch()
        assert first.result()["output"] == "all done"
    assert _landed(quick_path) == ["gate 1"]


def test_a_message_for_a_run_that_died_comes_after_its_step(
    warm: Warm, scheme: str, quick_path: Path
) -> None:
    """The calls of the dead process get their results first."""
    place = str(quick_path)
    with warm.child(work, place, scheme, "charge", target=Point("charge: after", 1)) as child:
        assert child.outcome() is None
    assert warm.call(work, place, scheme, "hurry") == {"status": "completed", "output": "charged"}
    assert _landed(quick_path) == ["charge 1"]
    assert warm.call(look, place, scheme)["roles"] == ["user", "assistant", "tool", "user", "assistant"]

"""The plug is pulled, by a tool that is not part of this repository: on a file system of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .fork_server import ROOT


class Unavailable(Exception):
    """Power cuts cannot be made here; it says why."""


class ToolMissing(Unavailable):
    """The tool is not there."""


def pull_the_plug(
    module: str,
    arguments: Sequence[str],
    temporary: Path,
    *,
    trials: int,
    seconds: float,
    timeout_s: float = 240,
) -> list[dict[str, Any]]:
    """What each trial found: what was acknowledged, the verdict, and how much of it was lost.

    The worker is `python -m MODULE ARGUMENT… DIRECTORY [verify]`.
    """
    shared = Path(os.environ.get("HOLDFAST_SHARED") or ROOT.parent / "shared")
    tool = shared / "tools" / "power_cut.py"
    if not tool.exists():
        raise ToolMissing(f"{tool} is missing; HOLDFAST_SHARED names the folder that has tools/power_cut.py")
    command = [sys.executable, str(tool), "--trials", str(trials), "--seconds", str(seconds)]
    worker = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [*command, "--", *worker],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    results: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode == 2:
        raise Unavailable(str(results[-1]["unavailable"]) if results else done.stderr)
    assert len(results) == trials, f"{results}\n{done.stderr}"
    return results

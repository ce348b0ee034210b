"""On what a run was measured: what a reader needs to judge its figures."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from holdfast.system.clock import utc_now


def describe(directory: Path, command: str) -> dict[str, str]:
    """The machine, the day and the command."""
    return {
        "date": utc_now().strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "processors": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "Python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(directory: Path) -> str:
    """Of the mount that the directory is in."""
    mounts = Path("/proc/mounts")
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()] if mounts.exists() else []
    above = [(where, kind) for where, kind in found if directory.resolve().is_relative_to(where)]
    return max(above, key=lambda one: len(one[0]))[1] if above else "unknown"


def versions(packages: set[str]) -> dict[str, str]:
    """Of whatever was measured."""
    found = {}
    for package in sorted(packages - {"python"}):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found

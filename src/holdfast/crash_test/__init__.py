"""What would a crash do to your agent? Kill it at every boundary, resume it, and compare how it ends.

With pytest, ask for the fixture `holdfast_crash`; without it, call `run_crash_test`. The guide is
`docs/crash-tests.md`.
"""

from .harness import run_crash_test
from .report import CrashReport, CrashRun, Finding, Verdict
from .worlds import CrashWorld, DirectoryWorld, HttpRequest, HttpResponse, HttpWorld, SqliteWorld

__all__ = [
    "CrashReport",
    "CrashRun",
    "CrashWorld",
    "DirectoryWorld",
    "Finding",
    "HttpRequest",
    "HttpResponse",
    "HttpWorld",
    "SqliteWorld",
    "Verdict",
    "run_crash_test",
]

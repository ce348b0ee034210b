"""The command line `holdfast`.

`commands/` has a file for each command, named after it; `app` lists them, and `options` has what they share.
`entry_point` runs a command line, `store_access` opens the store, `console` prints, and `exit_codes` has the
exit codes. What is heavy (the store, the agents, the tables) is imported inside the commands, so that
`--help` is fast: the larger commands have their second half in a module beside `commands/`
(`session_report`, `session_stats`, `export_formats`, `agent_display`, `worker_display`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    from .entry_point import hide_secrets, run_command

    return run_command(hide_secrets(sys.argv[1:]) if arguments is None else list(arguments))

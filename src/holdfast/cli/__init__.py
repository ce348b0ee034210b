"""The command line `holdfast`.

`app` has the commands, each a function in `commands/`; `opening` opens the store for them, `console` is what
they speak through, `exits` what they end with. `timeline` reads a journal to people and `forms` are the ways
to export one. What is heavy (the store, the agents, the tables) is imported inside the commands: `--help`
starts at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    from .error_display import hide_secrets, run_command

    return run_command(hide_secrets(sys.argv[1:]) if arguments is None else list(arguments))

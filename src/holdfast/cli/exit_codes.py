"""Exit codes: what a program learns of a command without reading what it said."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """One meaning a number, over all commands."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    HELD = 4
    WAITS = 5
    FAILED = 6
    CANCELLED = 7
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS = {
    Exit.DONE: "done",
    Exit.ERROR: "an error: it says what, and what to do",
    Exit.USAGE: "the command line, an id or a URL is wrong; nothing was done",
    Exit.NOT_FOUND: "no such store, session, version or call",
    Exit.HELD: "somebody else holds the session",
    Exit.WAITS: "run, resume: it waits for a person, see `holdfast pending`",
    Exit.FAILED: "run, resume: it failed, and says why",
    Exit.CANCELLED: "run, resume: somebody asked it to stop",
    Exit.INTERRUPTED: "Ctrl-C",
    Exit.BROKEN_PIPE: "whoever read the output went away",
}


class Stop(Exception):
    """Ends a command with a message on stderr and a code."""

    def __init__(self, code: Exit, why: str) -> None:
        super().__init__(why)
        self.code = code


def explain(error: Exception) -> tuple[Exit, str]:
    """What an error means for the command line, in its words."""
    from ..errors import BadInput, Fenced, LeaseHeld, LostBlob, NotFound

    match error:
        case Stop():
            return error.code, str(error)
        case LeaseHeld():
            left = "" if error.left_s is None else f"; its lease runs out in {max(error.left_s, 0):.0f} s"
            return Exit.HELD, (
                f"{error.name!r} is held by {error.holder}{left} unless it is renewed. Wait for it with "
                "--wait SECONDS, or leave a message with `holdfast submit`"
            )
        case LostBlob():
            return (
                Exit.ERROR,
                f"{error}. If blobs are not kept in the store itself, name their home with --blobs",
            )
        case Fenced():
            return Exit.HELD, str(error)
        case NotFound():
            return Exit.NOT_FOUND, str(error)
        case BadInput():
            return Exit.USAGE, str(error)
        case _:
            return Exit.ERROR, str(error)

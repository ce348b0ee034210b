"""The exit codes of all commands, and which error has which."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """One meaning per number, over all commands."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    HELD = 4
    WAITS = 5
    FAILED = 6
    CANCELLED = 7
    DIFFERENT = 8
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS = {
    Exit.DONE: "done",
    Exit.ERROR: "an error: the message says what happened, and what to do",
    Exit.USAGE: "the command line, an id or a URL is wrong; nothing was done",
    Exit.NOT_FOUND: "no such store, session, version or call",
    Exit.HELD: "another process holds the session",
    Exit.WAITS: "run, resume: the run waits for a person, see `holdfast pending`",
    Exit.FAILED: "run, resume: the run failed; the message says why",
    Exit.CANCELLED: "run, resume: the run was cancelled",
    Exit.DIFFERENT: "replay: today's code would take another course",
    Exit.INTERRUPTED: "Ctrl-C",
    Exit.BROKEN_PIPE: "the reader of the output closed the pipe",
}


class Stop(Exception):
    """End a command with a message on stderr and an exit code."""

    def __init__(self, code: Exit, why: str) -> None:
        super().__init__(why)
        self.code = code


def explain(error: Exception) -> tuple[Exit, str]:
    """The exit code and the message of an error, in the words of the command line."""
    from ..errors import BadInput, Fenced, LeaseHeld, LostBlob, NotFound

    match error:
        case Stop():
            return error.code, str(error)
        case LeaseHeld():
            left = "" if error.left_s is None else f"; its lease expires in {max(error.left_s, 0):.0f} s"
            return Exit.HELD, (
                f"{error.name!r} is held by {error.holder}{left} unless it is renewed. Wait with "
                "--wait SECONDS, or send a message with `holdfast submit`"
            )
        case LostBlob():
            return (
                Exit.ERROR,
                f"{error}. If blobs are not kept in the store itself, name the place with --blobs",
            )
        case Fenced():
            return Exit.HELD, str(error)
        case NotFound():
            return Exit.NOT_FOUND, str(error)
        case BadInput():
            return Exit.USAGE, str(error)
        case _:
            return Exit.ERROR, str(error)

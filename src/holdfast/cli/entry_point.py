"""Run one command line: hide passwords, turn errors into one line and an exit code, handle Ctrl-C."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback

from ..redact import find_secrets, scrub
from ..system import threads
from .exit_codes import Exit, explain
from .options import COMMON_OPTIONS

_ARGUMENTS_VARIABLE = "_HOLDFAST_ARGUMENTS"


def hide_secrets(arguments: list[str]) -> list[str]:
    """The arguments of this process.

    If a password is among them, the program is executed again in the same process, with the arguments in its
    environment: process listings show the arguments of all users.
    """
    handed_over = os.environ.pop(_ARGUMENTS_VARIABLE, None)
    if handed_over is not None:
        return [str(one) for one in json.loads(handed_over)]
    secrets = find_secrets(arguments)
    before, same = sys.orig_argv[: -len(arguments) or None], sys.orig_argv[-len(arguments) :] == arguments
    if not secrets or not same or not sys.executable:
        return arguments
    os.environ[_ARGUMENTS_VARIABLE] = json.dumps(arguments)
    os.execv(sys.executable, [sys.executable, *before[1:], *(scrub(one, *secrets) for one in arguments)])


def run_command(arguments: list[str]) -> int:
    """Run a command; return its exit code."""
    try:
        code = _run(arguments)
        if code != Exit.INTERRUPTED:
            return code
    except KeyboardInterrupt:  # A second Ctrl-C while the first was handled.
        pass
    return _leave_at_once()


def _run(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    from .app import make_app

    try:
        # An argument that is not valid UTF-8 is shown with escapes, not an error.
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        if logging.lastResort is not None:
            # Log messages go to stderr, for people: no application has set up logging here.
            logging.lastResort.setFormatter(_Formatter())
        code = make_app()(command_first(arguments))
        sys.stdout.flush()
        return int(code or 0)
    except CycloptsError as error:
        command = " ".join(["holdfast", *(error.command_chain or ())])
        message = scrub(" ".join(str(error).split()), *find_secrets(arguments))
        _say(f"{command}: {message} See {command} --help")
        return Exit.USAGE
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Python would report the error again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except Exception as error:
        code, why = _explain(error)
        _say(scrub(why, *find_secrets(arguments)))
        return code


class _Formatter(logging.Formatter):
    """Escapes messages: they may quote users, models and tools."""

    def format(self, record: logging.LogRecord) -> str:
        from .console import visible

        return visible(super().format(record), lines=True)


def _say(text: str) -> None:
    from .console import say

    say(text)


def _leave_at_once() -> Exit:
    """Exit without waiting for a tool that hangs in its thread. Its effect is recorded as in doubt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if all(thread.daemon for thread in threads.enumerate() if thread is not threads.main_thread()):
        return Exit.INTERRUPTED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(Exit.INTERRUPTED)


def _explain(error: Exception) -> tuple[Exit, str]:
    from ..errors import HoldfastError
    from .exit_codes import Stop

    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    if isinstance(error, HoldfastError | Stop):
        code, why = explain(error)
        return code, f"holdfast: {why}"
    if isinstance(error, OSError):
        return Exit.ERROR, f"holdfast: {error}"
    # A bug in holdfast or in the agent's code: the traceback helps to find it.
    return Exit.ERROR, "".join(traceback.format_exception(error)).rstrip("\n")


def command_first(arguments: list[str]) -> list[str]:
    """Move the command before the common options: `holdfast --store sqlite:a.db sessions`."""
    place = 0
    while place < len(arguments):
        name, equals, _ = arguments[place].partition("=")
        takes_value = COMMON_OPTIONS.get(name)
        if takes_value is None:
            break
        place += 2 if takes_value and not equals else 1
    end = place + (2 if arguments[place : place + 1] == ["mcp"] else 1)  # It has commands of its own.
    return [*arguments[place:end], *arguments[:place], *arguments[end:]]

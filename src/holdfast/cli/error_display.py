"""Around a command: its errors become one line and a code, and nobody sees a traceback for a Ctrl-C."""

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

_HANDED_OVER = "_HOLDFAST_ARGUMENTS"


def hide_secrets(arguments: list[str]) -> list[str]:
    """The arguments of this process. If a password is among them, the program is started anew in the same
    process, with the password in its environment: whoever lists processes sees the arguments of all."""
    handed_over = os.environ.pop(_HANDED_OVER, None)
    if handed_over is not None:
        return [str(one) for one in json.loads(handed_over)]
    secrets = find_secrets(arguments)
    before, same = sys.orig_argv[: -len(arguments) or None], sys.orig_argv[-len(arguments) :] == arguments
    if not secrets or not same or not sys.executable:
        return arguments
    os.environ[_HANDED_OVER] = json.dumps(arguments)
    os.execv(sys.executable, [sys.executable, *before[1:], *(scrub(one, *secrets) for one in arguments)])


def run_command(arguments: list[str]) -> int:
    """Run it; the exit code."""
    try:
        code = _run(arguments)
        if code != Exit.INTERRUPTED:
            return code
    except KeyboardInterrupt:  # One more of them, while the last one was being attended to.
        pass
    return _leave_at_once()


def _run(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    from .app import make_app

    try:
        # Half a character in an argument is shown, not a reason to fail.
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        if logging.lastResort is not None:
            # What is logged where an application has set up no logging: on stderr, for people.
            logging.lastResort.setFormatter(_Formatter())
        code = make_app()(command_first(arguments))
        sys.stdout.flush()
        return int(code or 0)
    except CycloptsError as error:
        command = " ".join(["holdfast", *(error.command_chain or ())])
        said = scrub(" ".join(str(error).split()), *find_secrets(arguments))
        _say(f"{command}: {said} See {command} --help")
        return Exit.USAGE
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except Exception as error:
        code, why = _explain(error)
        _say(scrub(why, *find_secrets(arguments)))
        return code


class _Formatter(logging.Formatter):
    """Messages may quote what users, models and tools said."""

    def format(self, record: logging.LogRecord) -> str:
        from .console import visible

        return visible(super().format(record), lines=True)


def _say(text: str) -> None:
    from .console import say

    say(text)


def _leave_at_once() -> Exit:
    """Python would wait for a tool that hangs in its thread. What it may have done is in doubt, on record."""
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
    # A mistake of ours, or of the agent's code: all that is known helps to find it.
    return Exit.ERROR, "".join(traceback.format_exception(error)).rstrip("\n")


def command_first(arguments: list[str]) -> list[str]:
    """Common options may stand before the command, too: `holdfast --store sqlite:a.db sessions`."""
    place = 0
    while place < len(arguments):
        name, equals, _ = arguments[place].partition("=")
        takes_value = COMMON_OPTIONS.get(name)
        if takes_value is None:
            break
        place += 2 if takes_value and not equals else 1
    return [*arguments[place : place + 1], *arguments[:place], *arguments[place + 1 :]]

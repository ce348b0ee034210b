"""All commands, and what `--help` says before any of them is chosen."""

from __future__ import annotations

import re

from cyclopts import App, Group, Parameter

from .commands import (
    answers,
    blobs,
    branch,
    clean,
    demo,
    diff,
    drive,
    export,
    fleet,
    pending,
    send,
    sessions,
    tail,
)
from .commands import completion as shells
from .commands import show as showing
from .commands import stats as counting
from .examples import show_examples
from .exit_codes import MEANINGS

_HELP = """Sessions of LLM agents that survive crashes, from the outside.

`holdfast demo` shows it in a minute. `holdfast run agent.py "Hello"` drives an agent of yours; kill it, and
`holdfast resume agent.py SESSION` goes on. `sessions`, `show` and `tail` look, from any process, whoever
holds a session. `pending` lists what waits for you, with the command that answers it.
"""
_LOOK = Group("Look", sort_key=1)
_DRIVE = Group("Drive", sort_key=2)
_ANSWER = Group("Answer", sort_key=3)
_CHANGE = Group("Change", sort_key=4)
_REST = Group("Set up", sort_key=5)


def make_app() -> App:
    """The command line."""
    codes = "\n".join(f"{code:>5}  {meaning}" for code, meaning in MEANINGS.items())
    app = App(
        name="holdfast",
        help=_flow(_HELP),
        help_epilogue=f"Exit codes:\n\n{codes}",
        help_format="plaintext",
        version=_version,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        print_error=False,
        exit_on_error=False,
        group_commands=_REST,
        # Defaults are told in words; a flag has no opposite unless somebody needs it.
        default_parameter=Parameter(negative=(), show_default=False),
    )
    for group, commands in {
        _LOOK: (
            sessions.sessions,
            showing.show,
            tail.tail,
            diff.diff,
            export.export,
            counting.stats,
            blobs.blobs,
            fleet.workers,
        ),
        _DRIVE: (demo.demo, drive.run, drive.resume, fleet.worker, send.submit, send.cancel),
        _ANSWER: (
            pending.pending,
            answers.approve,
            answers.refuse,
            answers.resolve,
            answers.resolve_operation,
        ),
        _CHANGE: (branch.fork, branch.rewind, clean.clean),
        _REST: (shells.completion,),
    }.items():
        for place, command in enumerate(commands):
            command.__doc__ = _flow(command.__doc__ or "")
            epilogue = show_examples(command.__name__.replace("_", "-"))
            app.command(command, group=group, sort_key=place, help_epilogue=epilogue)
    return app


def _flow(doc: str) -> str:
    """A docstring with its paragraphs on one line each: a terminal has a width of its own."""
    about, line, parameters = doc.partition("----------\n")
    paragraphs = [" ".join(one.split()) for one in re.split(r"\n\s*\n", about)]
    described = re.sub(r"\n {8,}(?=\S)", " ", parameters)
    described = re.sub(r"(?m)^( {4}\S+) ", r"\1\n        ", described)
    return "\n\n    ".join(paragraphs) + (f"\n    {line}{described}" if line else "")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "not installed"

"""The commands, their groups and their examples: what `holdfast --help` lists."""

from __future__ import annotations

import re
from typing import Any

from cyclopts import App, Group, Parameter

from .commands.approve import approve
from .commands.blobs import blobs
from .commands.cancel import cancel
from .commands.clean import clean
from .commands.completion import completion
from .commands.copy import copy
from .commands.demo import demo
from .commands.diff import diff
from .commands.export import export
from .commands.fork import fork
from .commands.import_ import import_
from .commands.mcp import EXAMPLES as MCP_EXAMPLES
from .commands.mcp import make_mcp_app
from .commands.notify import notify
from .commands.pending import pending
from .commands.refuse import refuse
from .commands.replay import replay
from .commands.resolve import resolve
from .commands.resolve_operation import resolve_operation
from .commands.resume import resume
from .commands.rewind import rewind
from .commands.run import run
from .commands.sessions import sessions
from .commands.show import show
from .commands.stats import stats
from .commands.submit import submit
from .commands.tail import tail
from .commands.ui import ui
from .commands.worker import worker
from .commands.workers import workers
from .exit_codes import MEANINGS

_HELP = """Durable sessions of LLM agents: list, run, answer and change them.

`holdfast demo` shows in a minute how an agent survives a kill. `holdfast run agent.py "Hello"` runs an agent
of yours; kill it, and `holdfast resume agent.py SESSION` continues it. `sessions`, `show` and `tail` read
sessions, also while another process holds them. `pending` lists what waits for you, with the commands that
answer it; `ui` shows all of it in a browser.
"""
_COMMANDS = {
    "Look": (ui, sessions, show, tail, diff, replay, export, stats, blobs, workers),
    "Drive": (demo, run, resume, worker, submit, cancel),
    "Answer": (pending, notify, approve, refuse, resolve, resolve_operation),
    "Change": (fork, rewind, clean),
    "Keep": (copy, import_),
    "Set up": (completion,),
}
ALIASES: dict[str, tuple[str, ...]] = {
    "sessions": ("list", "ls", "ps"),
    "show": ("log",),
    "clean": ("delete",),
}
"""Other names of commands, for fingers that know them from other tools."""
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("holdfast demo --fast",),
    "run": (
        'holdfast run clerk.py "Refund order 42" --session order-42',
        'holdfast run clerk.py:clerk "Refund order 43" --label tenant=acme --json',
    ),
    "resume": ("holdfast resume clerk.py killed", "holdfast resume clerk.py --all"),
    "ui": ("holdfast ui", "holdfast ui --read-only --no-open --port 8700"),
    "sessions": (
        "holdfast sessions",
        "holdfast sessions --interrupted",
        "holdfast sessions --status waiting --label tenant=acme --json",
    ),
    "show": ("holdfast show killed", "holdfast show killed --last 10", "holdfast show family --brief"),
    "tail": ("holdfast tail killed -n 5", "holdfast tail killed -f", "holdfast tail killed --after 3 --json"),
    "diff": ("holdfast diff done 1", "holdfast diff done 1 2 --json"),
    "replay": (
        "holdfast replay done clerk.py",
        "holdfast replay done clerk.py --from 1 --json",
        "holdfast replay --all clerk.py --since 7d",
    ),
    "export": (
        "holdfast export done",
        "holdfast export done --form markdown --output done.md",
        "holdfast export done --form jsonl",
        "holdfast export done --form pytest --agent clerk.py --output test_done.py",
        "holdfast export done family --form journal --output two.jsonl",
        "holdfast export --form journal --output all.tar",
    ),
    "worker": (
        "holdfast worker clerk.py --until-idle",
        "holdfast worker clerk.py --concurrency 2 --label tenant=acme --until-idle --json",
    ),
    "workers": ("holdfast workers",),
    "stats": ("holdfast stats", "holdfast stats done killed --json"),
    "blobs": ("holdfast blobs", "holdfast blobs gc", "holdfast blobs gc --remove --yes"),
    "submit": (
        'holdfast submit killed "Mind the gap" --key mail-17',
        "echo 'A long letter' | holdfast submit killed -",
        'holdfast submit order-44 "Refund order 44" --agent clerk --label tenant=acme',
    ),
    "cancel": ('holdfast cancel killed --reason "maintenance tonight"',),
    "pending": ("holdfast pending", "holdfast pending asking --json"),
    "notify": ("holdfast notify --command cat --once",),
    "approve": (
        "holdfast approve asking c-refund",
        """holdfast approve asking c-refund --args '{"order": "42", "cents": 4900}' --note "half is fair" """,
    ),
    "refuse": ('holdfast refuse asking c-refund --reason "not without a receipt"',),
    "resolve": (
        'holdfast resolve doubtful c-charge landed --result "receipt 7" --note "seen at the bank"',
        "holdfast resolve doubtful c-charge not-landed --by ann",
        "holdfast resolve doubtful @11 gave-up",
    ),
    "resolve-operation": (
        "holdfast resolve-operation ed34c2178d39d70278cf488c56bb7f23189be62ce3d6d7f2a7315cf2806d1e0f landed",
    ),
    "fork": ("holdfast fork done --version 1 --into what-if",),
    "rewind": ("holdfast rewind done --steps 1", "holdfast rewind done --version 1 --undo clerk.py --yes"),
    "clean": ("holdfast clean done", "holdfast clean done --only transcript --yes"),
    "copy": (
        "holdfast copy sqlite:holdfast.db dir:archive",
        "holdfast copy sqlite:holdfast.db dir:archive done family --dry-run",
        "holdfast copy sqlite:holdfast.db sqlite:laptop.db done --as done-here --json",
        "holdfast copy sqlite:holdfast.db dir:new erring --move",
    ),
    "import": (
        "holdfast export done --form journal -o done.tar && holdfast import done.tar --store dir:archive",
        "holdfast export done --form journal -o a.jsonl && holdfast import a.jsonl --store dir:b --as mine",
    ),
    "mcp": tuple(line for lines in MCP_EXAMPLES.values() for line in lines),
    "completion": ("holdfast completion bash > holdfast.bash",),
}
"""The examples at the end of each command's help. `docs/cli.md` has them too, and a test runs them all."""


def make_app() -> App:
    """The command line."""
    codes = "\n".join(f"{code:>5}  {meaning}" for code, meaning in MEANINGS.items())
    groups = {name: Group(name, sort_key=place) for place, name in enumerate(_COMMANDS, 1)}
    settings: dict[str, Any] = {
        "help_format": "plaintext",
        "result_action": "return_value",
        "suppress_keyboard_interrupt": False,
        "print_error": False,
        "exit_on_error": False,
        # The help texts name defaults in words; a flag has no `--no-` form.
        "default_parameter": Parameter(negative=(), show_default=False),
    }
    app = App(
        name="holdfast",
        help=_flow(_HELP),
        help_epilogue=f"Exit codes:\n\n{codes}",
        version=_version,
        group_commands=groups["Set up"],
        **settings,
    )
    for group, commands in _COMMANDS.items():
        for place, command in enumerate(commands):
            command.__doc__ = _flow(command.__doc__ or "")
            name = command.__name__.rstrip("_").replace("_", "-")
            app.command(
                command,
                name=name,
                alias=ALIASES.get(name),
                group=groups[group],
                sort_key=place,
                help_epilogue=_show_examples(name),
            )
    own: dict[str, Any] = {"group": groups["Set up"], "sort_key": 0, "help_epilogue": _show_examples("mcp")}
    app.command(make_mcp_app(_flow, **settings, **own))
    return app


def _show_examples(command: str) -> str:
    lines = "\n".join(f"  {line.strip()}" for line in EXAMPLES[command])
    same = ", ".join(f"holdfast {alias}" for alias in ALIASES.get(command, ()))
    aliases = f"The same: {same}\n\n" if same else ""
    return f"Examples:\n\n{lines}\n\n{aliases}Exit codes: holdfast --help"


def _flow(doc: str) -> str:
    """A docstring with each paragraph on one line: cyclopts wraps it to the width of the terminal."""
    about, line, parameters = doc.partition("----------\n")
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", about)]
    described = re.sub(r"\n {8,}(?=\S)", " ", parameters)
    described = re.sub(r"(?m)^( {4}\S+) ", r"\1\n        ", described)
    return "\n\n    ".join(paragraphs) + (f"\n    {line}{described}" if line else "")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "not installed"

"""`holdfast export`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from ..options import DEFAULTS, Common, SessionArg

if TYPE_CHECKING:
    from ...store.store import Store


class Form(NamedTuple):
    """What a form is for. Its writer is in `export_formats`, which is too heavy for `--help`."""

    about: str
    is_json: bool = False


FORMS = {
    "text": Form("the transcript, to read"),
    "markdown": Form("the transcript, with headings and code"),
    "jsonl": Form("every entry of the journal, one JSON object a line", is_json=True),
    "experiment": Form("every reply with its author and time, one JSON object a line", is_json=True),
    "pytest": Form("every reply and result, as a test that replays them with `--agent`"),
}
_ABOUT = "; ".join(f"{name}: {form.about}" for name, form in FORMS.items())


def export(
    session: SessionArg,
    /,
    *,
    form: Annotated[
        str, Parameter(name=["--form", "-F"], completer=lambda _: list(FORMS), help=f"{_ABOUT}.")
    ] = "text",
    version: int | None = None,
    agent: str | None = None,
    without_secrets: bool = False,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    common: Common = DEFAULTS,
) -> None:
    """Write a session in another form.

    A thread of LangGraph is named by its thread id; its transcript is that of the latest checkpoint.
    An export is a copy for people and other programs: it cannot be opened as a session again.

    Parameters
    ----------
    version
        The version to export; the latest by default. Of a test: the version after which it begins.
    agent
        For a test: the agent, as in `holdfast run`. The test imports it from its module.
    without_secrets
        For a test: leave out what looks like a secret. Without this, it is refused.
    output
        The file to write, instead of stdout. An existing file is not overwritten.
    """
    from ..exit_codes import Exit, Stop
    from ..store_access import with_store

    if form not in FORMS:
        raise Stop(Exit.USAGE, f"no form {form!r}; there are {', '.join(FORMS)}")
    if output is not None and output.exists():
        raise Stop(Exit.USAGE, f"{output} exists already; name a file that does not")
    if (form == "pytest") != (agent is not None) or (without_secrets and agent is None):
        raise Stop(Exit.USAGE, "--form pytest needs the agent: --agent agent.py; other forms have none")
    if agent is None:
        with_store(common, lambda store: _export(store, session, form, version, output, common))
    else:
        target = agent
        with_store(
            common,
            lambda store: _export_test(store, session, target, version, without_secrets, output, common),
        )


async def _export_test(
    store: Store,
    session: str,
    target: str,
    version: int | None,
    without_secrets: bool,
    output: Path | None,
    common: Common,
) -> None:
    from ...replay import read_recording
    from ...replay.drive import check_fits
    from ...replay.pytest_form import write_test
    from ..console import say
    from ..load_agent import find_import
    from ..store_access import get_head

    head = await get_head(store, session)
    module, attribute, agent = find_import(target, head.agent)
    recording = await read_recording(store, head.session, version=version)
    check_fits(recording, agent)
    text = write_test(recording, module=module, attribute=attribute, without_secrets=without_secrets)
    _write([text], session, "pytest", head.current_version if version is None else version, output, common)
    if output is not None:
        say(f"`pytest {output}` must find {module!r}: keep it beside that file, or set pythonpath")


async def _export(
    store: Store, session: str, form: str, version: int | None, output: Path | None, common: Common
) -> None:
    from ...adapters.langgraph_threads import fold_thread
    from ..exit_codes import Exit, Stop
    from ..export_formats import WRITERS, Exported
    from ..store_access import get_head, get_thread

    heads = await get_thread(store, session)
    head = heads[0] if heads else await get_head(store, session)
    if heads and version is not None:
        raise Stop(Exit.USAGE, f"{session} is a thread of LangGraph: it has checkpoints, and no versions")
    state = await store.load(head.session, version)
    entries = [entry async for entry in store.tail(head.session, follow=False) if entry.seq <= state.seq]
    exported = Exported(state=state, entries=entries, thread=fold_thread(entries) if heads else None)
    lines = WRITERS[form](exported)
    _write(lines, session, form, state.version, output, common)


def _write(
    lines: Iterable[str], session: str, form: str, version: int, output: Path | None, common: Common
) -> None:
    from ..console import escape_json, print_json, print_text, say

    if common.json:
        print_json({"session": session, "form": form, "version": version, "content": "".join(lines)})
    elif output is None:
        for line in lines:
            if FORMS[form].is_json:
                line = escape_json(line)
            print_text(line, lines=True, end="")
    else:
        # Exclusively: another process may have created it meanwhile.
        with output.open("x", encoding="utf-8") as file:
            file.writelines(lines)
        say(f"wrote {output}")

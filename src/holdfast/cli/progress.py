"""A progress bar for long work, on stderr, where it is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .console import SafeText, stderr

if TYPE_CHECKING:
    from ..store.copy import CopyProgress

_PHASES = {"copy": "copying", "verify": "comparing"}


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Callable[[CopyProgress], object]]:
    """What a copy is to call as it goes on. `quiet`: nothing is shown."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = stderr()
    bar = Progress(
        TextColumn("{task.fields[phase]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[session]}"),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", phase="", session="")

        def tell(progress: CopyProgress) -> None:
            session = SafeText(progress.session).plain
            phase = _PHASES[progress.phase]
            bar.update(task, completed=progress.entries, total=progress.total, phase=phase, session=session)

        yield tell

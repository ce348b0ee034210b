"""What a killed agent does twice, and what it loses: holdfast and its peers, side by side.

    python bench/crashes.py [--quick] [--only NAME …] [--cuts N] [--json FILE] [--directory DIR]

The same clerk charges a card, looks something up, then mails and ships in one batch, under each subject.
It is killed (SIGKILL) at one point and resumed in another process as the subject's documentation says; or two
processes have the same session; or the power fails. `killed/stage.py` is the play, `killed/subjects.py` says
who gives it and how, and `README.md` how to read the table. Whoever is not installed is named below it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

# In the place of this folder: the names of its scripts are those of other people's modules.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.killed.scenarios import POWER_CUT, SCENARIOS, Cell, Trial, cut  # noqa: E402
from bench.killed.subjects import SUBJECTS, Subject, sort_out  # noqa: E402
from tests.crash.power_cut import Unavailable  # noqa: E402

TITLE: Final = "killed, and resumed in another process: how often each effect happened, and what was lost"
AT_ONCE: Final = 4
"""Most of the time is spent waiting: for imports, for leases, for what is to be killed."""
QUICK: Final = (
    "after the effect, before its record",
    "in a batch, one done, one under way",
    "two processes at once",
)


class Bench(NamedTuple):
    """What every row has in common. Used by several threads at once."""

    folder: Path
    server: str
    columns: Sequence[str]
    cuts: int
    notes: list[str]

    def play(self, subject: Subject) -> list[Cell]:
        """One row of the table."""
        trial = Trial(subject, self.folder / subject.key, self.server)
        try:
            return [self._fill(trial, column) for column in self.columns]
        finally:
            trial.close()

    def _fill(self, trial: Trial, column: str) -> Cell:
        try:
            return cut(trial, cuts=self.cuts) if column == POWER_CUT else SCENARIOS[column](trial)
        except Unavailable as error:
            why = f"{POWER_CUT}: skipped, because {error}"
            if why not in self.notes:
                self.notes.append(why)
            return Cell("skipped", right=True)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.notes.append(f"{trial.subject.name}, {column}: {str(error).splitlines()[0]}")
            return Cell("no answer", right=False)


def show(columns: Sequence[str], rows: dict[str, list[Cell]], notes: Sequence[str]) -> None:
    """For people."""
    table = Table(title=TITLE, show_lines=True)
    for column in ("", *columns):
        table.add_column(column)
    for name, cells in rows.items():
        table.add_row(name, *(f"[{'green' if cell.right else 'red'}]{cell.text}[/]" for cell in cells))
    console = Console(width=190)
    console.print(table)
    for note in notes:
        console.print(f"- {note}", markup=False)


def main() -> None:
    """Every scenario on every subject; one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"only SQLite, and only: {'; '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[one.key for one in SUBJECTS])
    parser.add_argument("--cuts", type=int, default=3, metavar="N", help="power cuts for each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    columns = list(QUICK) if given.quick else [*SCENARIOS, POWER_CUT]
    slow = [one for one in SUBJECTS if one.on_server and given.quick and not given.only]
    wanted = [one for one in SUBJECTS if one not in slow and (not given.only or one.key in given.only)]
    chosen, notes = sort_out(wanted)
    notes += [f"{one.name}: left out by --quick" for one in slow]
    with ExitStack() as stack:
        url = ""
        if any(subject.on_server for subject in chosen):
            from bench.killed.server import run_server

            url = stack.enter_context(run_server())
        directory = tempfile.TemporaryDirectory(prefix="holdfast-crashes-", dir=given.directory)
        folder = Path(stack.enter_context(directory))
        folder.chmod(0o755)  # PostgreSQL does not run as root, and must get there.
        bench = Bench(folder, url, columns, given.cuts, notes)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            rows = dict(zip((one.name for one in chosen), pool.map(bench.play, chosen), strict=True))
    show(columns, rows, notes)
    if given.json is not None:
        table: dict[str, Any] = {
            "title": TITLE,
            "columns": ["subject", *columns],
            "rows": [[name, *(cell.text for cell in cells)] for name, cells in rows.items()],
            "notes": notes,
        }
        given.json.write_text(json.dumps(table, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()

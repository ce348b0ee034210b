"""A LangGraph graph that is killed in the middle of its work: on LangGraph's own saver, and on holdfast's.

    python bench/graph_kills.py [--quick] [--directory DIR]

Each row is a graph that is killed at that moment and goes on in a new process. The table says which effects
happened, and which replies the model was asked for, more or less often than once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crash.warm import Failure, Warm  # noqa: E402
from tests.langgraph.plays import KILLS, play  # noqa: E402


def trial(warm: Warm, folder: Path, who: str, kill: str) -> str:
    """Kill it, let it go on, and say what has happened more or less than once."""
    folder.mkdir(parents=True)
    with warm.child(play, str(folder), who, kill) as child:
        assert child.outcome() is None, f"not killed {kill}"
    with warm.child(play, str(folder), who) as child:
        found: Any = child.outcome()
    if isinstance(found, Failure):
        return f"fails: {found.kind}"
    happened = Counter(found["world"])
    expected = ("pay a", "post a", "refund a", "model 0", "model 1", "model 2")
    wrong = [f"{one} {happened[one]} times" for one in expected if happened[one] != 1]
    return ", ".join(wrong) or "everything once"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only the first two rows")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    table = Table(title="killed …, then resumed in a new process")
    for column in ("killed", "AsyncSqliteSaver, plain tools", "HoldfastSaver, durable tools"):
        table.add_column(column)
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        folder = Path(name)
        warm = Warm(folder)
        for at, kill in enumerate(KILLS[:2] if given.quick else KILLS):
            stock, ours = (trial(warm, folder / f"{who}-{at}", who, kill) for who in ("stock", "sqlite"))
            table.add_row(kill, stock, ours)
        warm.close()
    Console(width=130).print(table)


if __name__ == "__main__":
    main()

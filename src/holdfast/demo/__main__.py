"""`python -m holdfast.demo [DATABASE]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .scenario import Scenario
from .world import World


def main() -> int:
    """Play the demo; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.demo",
        description="An agent is killed twice during its work, and nothing happens twice.",
    )
    parser.add_argument(
        "database",
        nargs="?",
        type=Path,
        help="the SQLite file to create (by default in a new temporary directory)",
    )
    parser.add_argument("--fast", action="store_true", help="without pauses")
    parser.add_argument(
        "--ui", action="store_true", help="show the database in a browser afterwards, as `holdfast ui` does"
    )
    parser.add_argument("--no-open", action="store_true", help="with --ui: only print the address")
    options = parser.parse_args()
    database: Path | None = options.database
    if database is None:
        database = Path(tempfile.mkdtemp(prefix="holdfast-demo-")) / "demo.db"
    world = World(database)
    for path in (database, world.bank.path, world.post.path):
        if path.exists():
            parser.error(f"{path} exists already; name a database that does not")
    try:
        Scenario(database.absolute(), fast=options.fast).play()
        if options.ui:
            return show(database.absolute(), no_open=options.no_open)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return 0


def show(database: Path, *, no_open: bool) -> int:
    """Show the database in a browser; return the exit status."""
    from ..cli import main as run_command  # It is not needed for the demo itself.

    return run_command(["ui", "--store", f"sqlite:{database}", *(["--no-open"] if no_open else [])])


if __name__ == "__main__":
    sys.exit(main())

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
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m holdfast.demo [DATABASE]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .stage import Stage


def main() -> int:
    """Play it; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.demo",
        description="A session is killed in the middle of a step and carries on.",
    )
    parser.add_argument(
        "database",
        nargs="?",
        type=Path,
        help="the SQLite file to make (a new one in the temporary directory)",
    )
    parser.add_argument(
        "--pace", type=float, default=1.0, help="2 is slower, 0 does not wait for anybody to read (1)"
    )
    options = parser.parse_args()
    database: Path | None = options.database
    if database is not None and database.exists():
        parser.error(f"{database} exists already; name a file that does not")
    if database is None:
        database = Path(tempfile.mkdtemp(prefix="holdfast-demo-")) / "demo.db"
    try:
        Stage(database.absolute(), pace=options.pace).play()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

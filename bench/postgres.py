"""PostgreSQL: a step beside a raw INSERT, many sessions at once, the fleet, and three peers.

    python bench/postgres.py [--quick] [--directory DIR]

A part of `make bench`, printed. The peers are in the environment that `make bench` makes:
`.venv/peers/bin/python bench/postgres.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from bench.__main__ import main

    sections = ["turns", "growth", "throughput", "fleet"]
    subjects = [
        "holdfast PostgreSQL",
        "raw PostgreSQL",
        "HoldfastSaver PostgreSQL",
        "AsyncPostgresSaver",
        "OpenAI SQLAlchemySession PostgreSQL",
        "DBOS PostgreSQL",
    ]
    main([*sections, "--subjects", *subjects, *sys.argv[1:]])

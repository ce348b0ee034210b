"""What a step costs as a session grows, on each local store, beside the same bytes written raw.

    python bench/growth.py [--quick] [--directory DIR]

A part of `make bench`, printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from bench.__main__ import main

    sections = ["turns", "growth", "syncs"]
    subjects = ["holdfast dir", "holdfast SQLite", "raw append", "raw SQLite"]
    main([*sections, "--subjects", *subjects, *sys.argv[1:]])

"""The table of crashes says what happened, and names the subjects that it leaves out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.killed.scenarios import judge
from bench.killed.stage import FINISHED
from bench.killed.subjects import Subject, sort_out
from tests.docs.blocks import ROOT

HELD = "second refused: LeaseHeld; once"


def make_table(folder: Path, *options: str) -> dict[str, Any]:
    """What the script writes for other programs."""
    file = folder / "table.json"
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "bench" / "crashes.py"), "--json", str(file), *options]
    done = subprocess.run(
        [*command, "--directory", str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    table: dict[str, Any] = json.loads(file.read_text())
    assert table["title"] in done.stdout
    assert all(len(row) == len(table["columns"]) for row in table["rows"])
    return table


def test_holdfast_does_nothing_twice(quick_path: Path) -> None:
    """Killed after an effect or in a batch, or met by another: each effect once, or a person is asked."""
    table = make_table(quick_path, "--quick", "--only", "holdfast", "holdfast-no-verify")
    assert table["rows"] == [
        ["holdfast", "once", "once", HELD],
        ["holdfast, no verify", "in doubt, asked", "in doubt, asked", HELD],
    ]


@pytest.mark.long
def test_nor_do_its_adapters(quick_path: Path) -> None:
    """In every scenario; power cuts are made where they can be."""
    table = make_table(quick_path, "--cuts", "1", "--only", "holdfast-pydantic-ai", "holdfast-langgraph")
    for row in table["rows"]:
        assert row[1:6] == ["once"] * 5, row
        assert all("refused: " in cell and cell.endswith("; once") for cell in row[6:8]), row
        assert row[8] == "skipped" or row[8].startswith("none of "), row


def test_a_subject_that_is_not_installed_is_named() -> None:
    """No subject is left out silently."""
    absent = Subject("absent", "Absent", "absent", "nohow", "nowhere", packages=("no-such-package",))
    assert sort_out([absent]) == ([], ["Absent: left out, because no-such-package is not installed"])


@pytest.mark.parametrize(
    ("happened", "text"),
    [
        ({}, "once"),
        ({"charge": 2}, "charge twice"),
        ({"mail": 3, "ship": 3}, "mail, ship 3 times"),
        ({"charge": 0}, "charge never"),
        ({"saw charge look mail ship": 0, "saw look mail ship": 1}, "result of charge lost"),
        ({"reply 0": 2}, "1 reply lost"),
    ],
)
def test_what_went_wrong_is_seen(happened: dict[str, int], text: str) -> None:
    """Each kind of it, in a world in which everything else went well."""
    well = ("charge", "mail", "ship", "reply 0", "reply 1", "reply 2", "reply 3", "saw charge look mail ship")
    world = Counter({**dict.fromkeys(well, 1), **happened})
    cell = judge(+world, FINISHED, unavoidable=False)
    assert (cell.text, cell.right) == (text, text == "once")

"""What docs/architecture.md draws of the ways through the code."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def drawn_ways() -> list[list[tuple[str, str]]]:
    """The ways on the page: function and file of each line."""
    section = (ROOT / "docs" / "architecture.md").read_text().partition("## Two ways through the code")[2]
    blocks = re.findall(r"^```text\n(.*?)^```$", section.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    return [[(line.split()[1], line.split()[0]) for line in block.splitlines()] for block in blocks]


def test_the_ways_on_the_page_are_those_of_the_code() -> None:
    """Every function that is drawn is called, in this order, in a process that goes the way."""
    script = ROOT / "tools" / "call_paths.py"
    done = subprocess.run([sys.executable, script, "--list"], capture_output=True, text=True, check=True)
    traced: list[list[tuple[str, str]]] = [[]]
    for line in done.stdout.splitlines():
        if line.startswith(" "):
            file, function = line.split()
            traced[-1].append((file, function))
        else:
            traced.append([])
    ways = drawn_ways()
    assert len(ways) == 3
    for way, calls in zip(ways, traced, strict=False):
        rest = iter(calls)
        missing = next((step for step in way if step not in rest), None)
        assert missing is None, f"not called, or not in this order: {missing}"

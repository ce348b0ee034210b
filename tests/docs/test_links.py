"""What the pages point at is there."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

_OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "examples/README.md")
_DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
_PAGES = (*PAGES, *(ROOT / name for name in _OTHERS), *_DECISIONS)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as they stand in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a heading in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_the_tests_that_prove_the_guarantees_exist() -> None:
    """Each row of the table names at least one test, and every test that it names is there."""
    lines = (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    headers = ("| ---", "| what holds")
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(headers)]
    assert len(rows) > 60
    for row in rows:
        proofs = re.findall(r"\[`((?:tests|src)/[\w/]+\.py)`\]\([^)]+\):((?:,? `test_\w+`)+)", row)
        assert proofs, row
        for file, named in proofs:
            for test in re.findall(r"test_\w+", named):
                assert f"def {test}(" in (ROOT / file).read_text(), f"{file}: {test}"

"""What the pages point at is there."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

_PAGES = (*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md")


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
    """Each row of the README's table names at least one test, and every test that it names is there."""
    table = (ROOT / "README.md").read_text().split("## Guarantees", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 8
    for row in rows:
        (file,) = re.findall(r"\[`((?:tests|src)/[\w/]+\.py)`\]", row)
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        for test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"{file}: {test}"

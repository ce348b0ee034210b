"""`docs/errors.md` names every error, and what to do about it."""

import re

from holdfast import errors
from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs" / "errors.md").read_text()


def test_every_error_has_a_row_that_says_what_to_do() -> None:
    """But for the root, which nobody raises."""
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]+)\|$", TEXT, re.MULTILINE))
    leaves = {name for name, value in vars(errors).items() if isinstance(value, type)} - {"HoldfastError"}
    assert set(rows) == leaves
    assert all(advice.strip() for advice in rows.values())


def test_the_tree_is_the_one_in_the_code() -> None:
    """Drawn once in each place, with the same branches."""

    def branches(text: str) -> list[str]:
        return [
            match.rstrip()
            for match in re.findall(r"^[│├└─ ]*[A-Z]\w+(?: \(also an? \w+\))?", text, re.MULTILINE)
        ]

    drawn = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert drawn is not None
    tree = (errors.__doc__ or "").split("\n\n", 1)[1]
    assert branches(drawn[1]) == branches(tree)

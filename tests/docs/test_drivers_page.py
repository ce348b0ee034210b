"""The driver that `docs/drivers.md` builds passes the suite that every driver passes."""

import pytest

from tests.docs.blocks import ROOT, find_blocks

_PAGE = ROOT / "docs" / "drivers.md"
_names: dict[str, object] = {"__name__": __name__}
for _block in find_blocks(_PAGE, "python"):
    if "async with" not in _block.source:
        exec(_block.compile(), _names)

# pytest collects it from here: the suite, with the page's own driver.
TestOneFile = _names["TestOneFile"]
assert isinstance(TestOneFile, type)


def test_the_suite_is_not_empty(request: pytest.FixtureRequest) -> None:
    """What was collected from the page is the whole suite."""
    promises = [name for name in dir(TestOneFile) if name.startswith("test_")]
    assert len(promises) > 50

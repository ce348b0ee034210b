"""The driver that `docs/drivers.md` builds passes the suite that every driver passes."""

from tests.docs.blocks import ROOT, find_blocks

_names: dict[str, object] = {"__name__": __name__}
for _block in find_blocks(ROOT / "docs" / "drivers.md", "python"):
    if "async with" not in _block.source:
        exec(_block.compile(), _names)

# pytest collects it from here: the suite, with the page's own driver.
TestOneFile = _names["TestOneFile"]


def test_the_page_runs_the_whole_suite() -> None:
    """Nothing of it is overridden but how to open the driver."""
    assert isinstance(TestOneFile, type)
    assert [name for name in vars(TestOneFile) if not name.startswith("__")] == ["make_driver"]
    assert sum(name.startswith("test_") for name in dir(TestOneFile)) > 50

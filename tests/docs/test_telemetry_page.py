"""`docs/telemetry.md` lists what is really reported."""

import re

from holdfast.telemetry import names
from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs" / "telemetry.md").read_text()
NAME = re.compile(r"(?:gen_ai|holdfast|error)\.[\w.]+")


def test_every_attribute_and_metric_is_on_the_page() -> None:
    """No more and no less than there are."""
    tables = "\n".join(line for line in TEXT.splitlines() if line.startswith("|"))
    constants = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)]
    assert set(re.findall(f"`({NAME.pattern})`", tables)) == set(filter(NAME.fullmatch, constants))

"""For people who test what they build upon holdfast. Needs pytest.

from holdfast.testing import DriverSuite

class TestMyDriver(DriverSuite):
    def make_driver(self, tmp_path):
        return MyDriver(tmp_path / "store")

`HomeSuite` and `KeyedHomeSuite` are the same for homes of blobs.
"""

import pytest

# Before the suites are imported, so that their assertions explain themselves when they fail.
pytest.register_assert_rewrite("holdfast.testing.conformance")

from .conformance import DriverSuite  # noqa: E402
from .conformance.home_keys import KeyedHomeSuite  # noqa: E402
from .conformance.homes import HomeSuite  # noqa: E402

__all__ = ["DriverSuite", "HomeSuite", "KeyedHomeSuite"]

"""For people who test what they build upon holdfast. Needs pytest.

from holdfast.testing import DriverSuite

class TestMyDriver(DriverSuite):
    def make_driver(self, tmp_path):
        return MyDriver(tmp_path / "store")
"""

import pytest

# Before the suite is imported, so that its assertions explain themselves when they fail.
pytest.register_assert_rewrite("holdfast.testing.conformance")

from .conformance import DriverSuite  # noqa: E402

__all__ = ["DriverSuite"]

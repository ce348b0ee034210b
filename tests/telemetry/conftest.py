"""What the tests of telemetry may ask for."""

from collections.abc import Iterator

import pytest

from tests.telemetry.exporters import Listener, listen


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A provider is configured."""
    with listen() as found:
        yield found

"""What the tests of the pages need."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import metrics, trace
from opentelemetry.util._once import Once

from holdfast import telemetry


@contextmanager
def own_providers() -> Iterator[None]:
    """What is inside may configure telemetry, for good as far as the API is concerned; it ends here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "_found", None)
        patch.setattr(telemetry, "_look_again_s", 0.0)
        patch.setattr(trace, "_TRACER_PROVIDER", None)
        patch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
        # OpenTelemetry takes a provider once, and has no call that takes it back.
        patch.setattr(metrics._internal, "_METER_PROVIDER", None)
        patch.setattr(metrics._internal, "_METER_PROVIDER_SET_ONCE", Once())
        yield


@pytest.fixture(autouse=True)
def providers_of_a_page_end_with_it() -> Iterator[None]:
    """The other tests want none."""
    with own_providers():
        yield

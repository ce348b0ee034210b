"""Object stores that tests may ask for; each worker starts its own, once."""

import os
from collections.abc import Iterator

import pytest

from tests.store.servers import Server, azurite, moto, why_no_azurite


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """S3, by moto's server."""
    with moto(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Azure, by Azurite."""
    if why := why_no_azurite():
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    with azurite(tmp_path_factory.mktemp("azure")) as server:
        yield server

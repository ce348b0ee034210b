"""The suite of `holdfast.testing`, on every home but those of drivers, which `DriverSuite` tests."""

from pathlib import Path

import pytest

from holdfast.blobs.home import BlobHome
from holdfast.blobs.home_url import open_home
from holdfast.blobs.keys import KeyFunction
from holdfast.testing import KeyedHomeSuite
from tests.store.servers import Server


class TestDirectory(KeyedHomeSuite):
    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        return open_home(f"dir:{tmp_path}/home", key=key)


class TestS3(KeyedHomeSuite):
    @pytest.fixture(autouse=True)
    def connect(self, s3: Server) -> None:
        self.server = s3

    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        return self.server.open(tmp_path.name, key)


class TestAzure(KeyedHomeSuite):
    @pytest.fixture(autouse=True)
    def connect(self, azure: Server) -> None:
        self.server = azure

    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        return self.server.open(tmp_path.name, key)

"""The suite of `holdfast.testing`, on every home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.blobs.driver_home import DriverHome
from holdfast.blobs.home import BlobHome
from holdfast.blobs.home_url import open_home
from holdfast.blobs.keys import KeyFunction
from holdfast.drivers.memory import MemoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.testing import HomeSuite, KeyedHomeSuite
from tests.store.servers import Server
from tests.stores import drop, schema_of, server_url


class TestMemory(HomeSuite):
    @pytest.fixture(autouse=True)
    def remember(self) -> None:
        self.driver = MemoryDriver()

    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        return DriverHome(self.driver)


class TestSqlite(HomeSuite):
    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        return DriverHome(SqliteDriver(tmp_path / "store.db"))


@pytest.mark.long
class TestPostgres(HomeSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres: str, tmp_path: Path) -> Iterator[None]:
        yield
        drop([schema_of(tmp_path)])

    @pytest.fixture(autouse=True)
    def _drivers(self, _server: None) -> Iterator[None]:
        self.opened: list[PostgresDriver] = []
        yield
        for driver in self.opened:
            driver.close()

    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        self.opened.append(PostgresDriver(server_url(schema_of(tmp_path))))
        return DriverHome(self.opened[-1])


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

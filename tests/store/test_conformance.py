"""Every driver keeps every promise of the contract."""

from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from holdfast.drivers.contract import Driver
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.memory import MemoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.testing import DriverSuite
from tests.stores import drop, schema_of, server_url

# What is in memory is gone with its driver; opening it again means the same object.
_in_memory: WeakValueDictionary[Path, MemoryDriver] = WeakValueDictionary()


class TestMemory(DriverSuite):
    def make_driver(self, tmp_path: Path) -> Driver:
        return _in_memory.setdefault(tmp_path, MemoryDriver())


class TestDirectory(DriverSuite):
    def make_driver(self, tmp_path: Path) -> Driver:
        return DirectoryDriver(tmp_path / "store")


class TestSqlite(DriverSuite):
    def make_driver(self, tmp_path: Path) -> Driver:
        return SqliteDriver(tmp_path / "store.db")


class TestPostgres(DriverSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres: str, tmp_path: Path) -> Iterator[None]:
        yield
        drop([schema_of(tmp_path)])

    def make_driver(self, tmp_path: Path) -> Driver:
        return PostgresDriver(server_url(schema_of(tmp_path)))

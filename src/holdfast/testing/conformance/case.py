"""What all groups of promises share: how they get at a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from ...drivers.contract import Driver

OpenDriver: TypeAlias = Callable[[], Driver]


class DriverCase:
    """The base of every group of promises."""

    def make_driver(self, tmp_path: Path) -> Driver:
        """Open the store that belongs to `tmp_path`, or make it."""
        raise NotImplementedError("override make_driver(self, tmp_path)")

    @pytest.fixture
    def open_driver(self, tmp_path: Path) -> Iterator[OpenDriver]:
        """Opens the store once more with each call; all are closed in the end."""
        opened: list[Driver] = []

        def open_once_more() -> Driver:
            opened.append(self.make_driver(tmp_path))
            return opened[-1]

        yield open_once_more
        for driver in opened:
            driver.close()

    @pytest.fixture
    def driver(self, open_driver: OpenDriver) -> Driver:
        """The open store."""
        return open_driver()

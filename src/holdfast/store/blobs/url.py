"""From a URL to a home. A typo is an error, never a silent fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...errors import BadUrl
from ..driver import Driver
from .driver import DriverHome
from .home import BlobHome

OpenHome: TypeAlias = Callable[[Driver], BlobHome]


def find_home(home: BlobHome | None) -> OpenHome:
    """How to open the home of a store with this driver, by default its own; nothing is opened yet."""
    if home is None:
        return DriverHome
    if not hasattr(home, "find_key"):
        raise BadUrl(f"{home!r} is no home of blobs")
    given = home
    return lambda driver: given

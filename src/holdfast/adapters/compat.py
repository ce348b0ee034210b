"""Which versions of a framework an adapter supports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from ..errors import MissingExtra


def check_versions(adapter: str, extra: str, needs: Mapping[str, tuple[tuple[int, int], int | None]]) -> None:
    """Raise `MissingExtra` if a package is missing, or of a version that the adapter does not support.

    `needs` has for each package the lowest version, and the major version that is too new (None: none is).
    """
    for package, (lowest, too_new) in needs.items():
        wanted = f"{package}>={lowest[0]}.{lowest[1]}" + (f",<{too_new}" if too_new is not None else "")
        try:
            found = version(package)
        except PackageNotFoundError:
            raise MissingExtra(adapter, extra, f"{wanted}; it is not installed") from None
        numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
        if numbers < lowest or (too_new is not None and numbers >= (too_new, 0)):
            raise MissingExtra(adapter, extra, f"{wanted}; {found} is installed")


@contextmanager
def explain_moved(adapter: str, extra: str, package: str, module: str) -> Iterator[None]:
    """Around imports from `module` of a package: raise `MissingExtra` if the installed version lacks a name
    that the adapter needs."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, MissingExtra) or (error.name or "").partition(".")[0] != module:
            raise
        found = (
            f"{package} {version(package)} is installed, which this version of holdfast does not know: "
            f"{error}; install an earlier {package}, or a newer holdfast"
        )
        raise MissingExtra(adapter, extra, found) from error

"""Labels on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from .exit_codes import Exit, Stop


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """`name=value`, each."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals and value):
            raise Stop(Exit.USAGE, f"a label is written name=value, not {one!r}")
        found[name] = value
    return found

"""Which pydantic-ai this is for."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ...errors import MissingExtra

LOWEST: Final = (2, 62)
BELOW: Final = (3, 0)
EXTRA: Final = "pydantic-ai"
_PACKAGE: Final = "pydantic-ai-slim"


def check_version() -> None:
    """Refuse to go on without the framework, or with one that this was not made for."""
    needs = f"{_PACKAGE}>={LOWEST[0]}.{LOWEST[1]},<{BELOW[0]}"
    try:
        found = version(_PACKAGE)
    except PackageNotFoundError as error:
        raise MissingExtra(f"holdfast.adapters.pydantic_ai ({needs})", EXTRA) from error
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if not LOWEST <= numbers < BELOW:
        feature = f"holdfast.adapters.pydantic_ai ({needs}; {found} is installed)"
        raise MissingExtra(feature, EXTRA)

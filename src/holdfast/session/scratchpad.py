"""The directory in which a session keeps its files."""

from __future__ import annotations

from pathlib import Path

from ..errors import BadInput
from ..system import files


def make_directory(root: str | Path) -> Path:
    """Make it, if it is not there; its absolute path."""
    path = Path(root).expanduser().absolute()
    try:
        files.make_tree(path)
    except OSError as error:
        raise BadInput(f"the scratchpad {path} cannot be made: {error.strerror}") from error
    except ValueError as error:  # A NUL, or half a surrogate pair.
        raise BadInput(f"the scratchpad {str(path)!r} is no path: {error}") from error
    return path

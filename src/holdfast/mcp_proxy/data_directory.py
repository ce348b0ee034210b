"""Where the ledger of a proxy is, if its command line does not say."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..errors import BadInput, BadUrl
from ..system import files


def default_store() -> str:
    """The URL of the store in the data directory of this user, which is made if it is missing.

    Clients start servers in any directory, and with few of the user's variables.
    """
    named = os.environ.get("XDG_DATA_HOME", "")
    try:
        # The specification has relative ones ignored.
        base = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise BadInput(
            "this user has no home directory to keep the record of calls in; name a place with --store "
            "sqlite:/PATH, or with XDG_DATA_HOME"
        ) from error
    folder = base / "holdfast"
    try:
        files.make_tree(base)
        with suppress(FileExistsError):
            files.mkdir(folder, 0o700)  # Arguments and results are in it.
    except OSError as error:
        raise BadInput(
            f"the directory {str(folder)!r}, for the record of calls, cannot be made: {error.strerror}. Name "
            "another place with --store sqlite:/PATH, or with XDG_DATA_HOME"
        ) from error
    return f"sqlite:{folder / 'mcp.db'}"


def absolute_url(url: str) -> str:
    """The URL with its path in full: commands that name it are typed in another directory."""
    scheme, colon, path = url.partition(":")
    if scheme == "memory":
        raise BadUrl("the record of a proxy must outlive it: name a file or a server, not 'memory:'")
    if scheme in ("sqlite", "dir") and colon and path.strip() and not path.startswith("//"):
        return f"{scheme}:{Path(path).expanduser().absolute()}"
    return url

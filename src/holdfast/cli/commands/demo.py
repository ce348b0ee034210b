"""`holdfast demo`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def demo(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
    """Watch an agent that is killed during its work continue without losing or repeating anything.

    Needs no key and no network. It keeps its database and prints commands to inspect it.

    Parameters
    ----------
    arguments
        What `python -m holdfast.demo --help` lists, such as the SQLite file to create.
    """
    import sys

    from ...demo.__main__ import main

    # It parses the command line itself, as when it is started alone.
    sys.argv = ["holdfast demo", *arguments]
    return main()

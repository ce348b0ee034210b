"""`holdfast demo`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def demo(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
    """Watch an agent being killed in the middle of its work, and go on as if nothing had happened.

    Needs no key and no network. It leaves a database behind and says how to look into it.

    Parameters
    ----------
    arguments
        What `python -m holdfast.demo --help` lists, such as the SQLite file to make.
    """
    import sys

    from ...demo.__main__ import main

    # It reads the command line by itself, as when it is started alone.
    sys.argv = ["holdfast demo", *arguments]
    return main()

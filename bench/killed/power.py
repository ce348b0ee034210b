"""The program whose plug is pulled: an agent that takes one step after another.

    python -m bench.killed.power SUBJECT DIRECTORY            work, and print ACK 0, ACK 1, …
    python -m bench.killed.power SUBJECT DIRECTORY verify     print HAVE <n>, or CORRUPT <why>

A step is a reply and the effect it calls for. It counts as acknowledged when the model is asked for the next
reply; after the cut, the subject is resumed, and how many results it still has is what the model is shown.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .stage import Ticker, play
from .subjects import get_subject


def main(key: str, directory: str, verifying: bool) -> None:
    """Work or verify; where there is a server, in its company."""
    subject = get_subject(key)
    database = ""
    if subject.on_server:
        from tests.server import start_on_disk

        database = start_on_disk(Path(directory)).url
    ticker = Ticker(verifying)
    try:
        play(None, subject.place, directory, variant=subject.variant, database=database, ticker=ticker)
    except Exception as error:
        if not verifying:
            raise
        print(f"CORRUPT {type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["verify"])

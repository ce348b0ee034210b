"""What was acknowledged: the truth that a store is held to after a crash.

Every line is written after the promise was made, by one `write` to a file that is opened for appending. What
may or may not have happened when somebody dies (a session deleted, its messages erased) is noted before it
is tried, too. `really_open` and `really_write` pass by what `faults` puts in the place of others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from os import open as really_open
from os import write as really_write
from pathlib import Path
from typing import Any, TypeAlias

from holdfast import Session
from tests.internals import writer_of

Ack: TypeAlias = dict[str, Any]


class Acks:
    """Notes what was acknowledged."""

    def __init__(self, path: Path) -> None:
        self._fd = really_open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, **fields: object) -> None:
        """Write one down."""
        really_write(self._fd, (json.dumps({"kind": kind, **fields}) + "\n").encode())

    def lines(self, session: Session) -> None:
        """Everything that was recorded in this session so far is durable."""
        head, channel = session.state.facts.head, writer_of(session).channel
        # While a later commit is under way, the sum of the last durable chunk is not known here.
        seq, sum, flying = channel.durable_seq, channel.sum, channel.flying
        is_known = seq == head.seq and flying is None and not channel.entries
        self.note("lines", session=session.id, uid=head.uid, seq=head.seq, sum=sum if is_known else None)


def read_acks(*paths: Path) -> Iterator[Ack]:
    """Everything that was noted."""
    for path in paths:
        if path.exists():
            for line in path.read_bytes().splitlines():
                yield json.loads(line)

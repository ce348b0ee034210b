"""The outside world: a log on the disk that every effect is appended to, and synced.

It knows nothing of holdfast, so it is what the ledger is held to. A service in it can look up a key, refuse a
holder older than one that it has seen, and make a key void.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from holdfast import ToolContext

What: TypeAlias = Literal["landed", "ran", "refused", "void"]
"""It happened, it was only looked at, it came from a holder that is out, or its key may never land again."""

UNDO: Final = "undo "
"""What the names of effects begin with that take another one back."""


class Deed(Struct, frozen=True, kw_only=True):
    """A line of the log."""

    what: What
    tool: str
    arg: str
    key: str
    call: str
    fence: int
    attempt: int
    pid: int
    session: str

    @property
    def result(self) -> str:
        """What the tool returns for it."""
        return f"{self.tool} {self.arg}"


class Refused(Exception):
    """The service has seen a newer holder, or the key is void: nothing was done."""


class World:
    """The log of one trial."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def land(
        self, ctx: ToolContext[Any], tool: str, arg: str, *, what: What = "landed", guarded: bool = False
    ) -> Deed:
        """It happens now. A service that is `guarded` refuses old holders and void keys."""
        with self._locked() as fd:
            deed = _deed(ctx, what, tool, arg)
            if guarded and self._is_too_late(deed):
                _append(fd, _deed(ctx, "refused", tool, arg))
                raise Refused(f"{tool} {arg}: the fence {ctx.fence} is old, or the key is void")
            _append(fd, deed)
        return deed

    def void(self, ctx: ToolContext[Any], tool: str, arg: str) -> Deed | None:
        """Make the key void, unless it has landed: then that deed."""
        with self._locked() as fd:
            found = self.find(ctx.key)
            if found is None:
                _append(fd, _deed(ctx, "void", tool, arg))
            return found

    def _is_too_late(self, deed: Deed) -> bool:
        others = [one for one in self.deeds() if one.session == deed.session]
        newer = any(one.fence > deed.fence for one in others)
        return newer or any(one.what == "void" and one.key == deed.key for one in others)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def deeds(self, *what: What) -> list[Deed]:
        """What happened, in order; of these kinds only, if any are named."""
        if not self._path.exists():
            return []
        found = [Deed(**json.loads(line)) for line in self._path.read_bytes().splitlines()]
        return [deed for deed in found if not what or deed.what in what]

    def find(self, key: str) -> Deed | None:
        """What landed under this key."""
        return next((deed for deed in self.deeds("landed") if deed.key == key), None)


def _deed(ctx: ToolContext[Any], what: What, tool: str, arg: str) -> Deed:
    return Deed(
        what=what,
        tool=tool,
        arg=arg,
        key=ctx.key,
        call=ctx.call_id,
        fence=ctx.fence,
        attempt=ctx.attempt,
        pid=os.getpid(),
        session=ctx.session.id,
    )


def _append(fd: int, deed: Deed) -> None:
    line = json.dumps({name: getattr(deed, name) for name in Deed.__struct_fields__}) + "\n"
    os.write(fd, line.encode())
    os.fsync(fd)

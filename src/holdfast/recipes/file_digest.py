"""Look at a file on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..messages import Json
from ..reprs import describe_error
from ..system import files
from .templates import CallNames, CannotTell, NotBegun, Template
from .verify_hook import ResultOf, Trace, VerifyHook, in_thread, make_hook


def before_writing(path: str | Path, content: bytes | str) -> dict[str, Json]:
    """What a tool notes before it writes a file: digests of what it holds now, and of what it will hold.

    await ctx.annotate(file=recipes.before_writing(path, content))
    """
    held = files.find_bytes(Path(path))
    return {"before": None if held is None else _digest(held), "after": _digest(_as_bytes(content))}


def file(
    path: str | Callable[..., str | Path],
    *,
    content: str | Callable[..., bytes | str] | None = None,
    note: str = "file",
    result: ResultOf = None,
    settled_after_s: float = 0.0,
) -> VerifyHook:
    """Find out whether a file was written, by its content.

        verify=recipes.file("reports/{name}.txt", content="{text}")
        verify=recipes.file("reports/{name}.pdf")

    With `content`, a file that holds it has landed, one that is not there has not, and any other content is
    `Unsure`. Without it, the tool notes what it is going to write with `before_writing`, under the name
    `note`: then the earlier content, too, means that it did not land, and so does a missing note.

    A missing directory is `Unsure`, because its disk may be absent. `found` has `path`, `sha256` and `bytes`.
    """
    place = Template(path, "path")
    expected = None if content is None else Template(content, "content")

    async def question(names: CallNames) -> Trace | None:
        where = Path(place.fill(names))
        if expected is None:
            before, after = _read_note(names.ctx.notes.get(note), note)
        else:
            before, after = None, _digest(_as_bytes(expected.fill(names)))
        held = await in_thread(partial(_read, where))
        digest = None if held is None else _digest(held)
        if digest == after:
            return Trace({"path": str(where), "sha256": digest, "bytes": len(held)})
        if digest == before:
            return None
        if digest is None:
            raise CannotTell(f"{where} is not there any more")
        raise CannotTell(f"{where} has another content: it may be half written, or changed since")

    uses = (place,) if expected is None else (place, expected)
    return make_hook("file", question, uses, result=result, settled_after_s=settled_after_s)


def _read(path: Path) -> bytes | None:
    try:
        held = files.find_bytes(path)
    except OSError as error:
        raise CannotTell(f"{path} cannot be read: {describe_error(error)}") from error
    if held is None and not files.is_dir(path.parent):
        raise CannotTell(f"the directory {path.parent} is not there: is its disk mounted?")
    return held


def _read_note(noted: Any, name: str) -> tuple[str | None, str]:
    if noted is None:
        raise NotBegun
    if not isinstance(noted, Mapping) or "after" not in noted:
        raise CannotTell(f"the note {name!r} is not one of recipes.before_writing")
    return noted.get("before"), noted["after"]


def _as_bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()

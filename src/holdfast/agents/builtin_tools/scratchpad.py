"""Tools with which a model keeps text files in a directory of its session, and cannot reach any other."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio.from_thread

from ...errors import BadInput, NotFound
from ...limits import SCRATCHPAD_LISTED_MAX, SCRATCHPAD_PAGE_CHARS, SCRATCHPAD_TIMEOUT_S
from ...suggestions import closest
from ...system import files
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, tool
from ...tools.outcome import Landed, NotDone, NotLanded, Unsure, Verification
from ...tools.retry import Retry
from .results import show_page
from .sandboxed_dir import ListedFile, open_sandboxed_dir, split_file_path

_HARMLESS = (BadInput, NotFound)
_ONCE = Retry(attempts=1)
"""A retry does not help against a bad path or a full disk."""


def scratchpad_tools(*, root: str | Path) -> list[AnyTool]:
    """Make the tools `scratchpad_write`, `_append`, `_read`, `_list` and `_delete`.

    They work in the directory `session.scratchpad`; a session without one gets `<root>/<its id>` with its
    first write. Give them to a `Registry`; calls need a session.
    """
    pad = Scratchpad(Path(root).expanduser().absolute())
    return [
        tool(
            name="scratchpad_write",
            side_effects={"write"},
            harmless=_HARMLESS,
            retry=_ONCE,
            timeout_s=SCRATCHPAD_TIMEOUT_S,
        )(pad.write),
        tool(
            name="scratchpad_append",
            side_effects={"mutate"},
            # A second call with the same text means a second line.
            scope="call",
            verify=pad.has_appended,
            harmless=_HARMLESS,
            retry=_ONCE,
            timeout_s=SCRATCHPAD_TIMEOUT_S,
        )(pad.append),
        tool(name="scratchpad_read", side_effects={"read"})(pad.read),
        tool(name="scratchpad_list", side_effects={"read"})(pad.list_files),
        tool(
            name="scratchpad_delete",
            side_effects={"write"},
            harmless=_HARMLESS,
            retry=_ONCE,
            timeout_s=SCRATCHPAD_TIMEOUT_S,
        )(pad.delete),
    ]


class Scratchpad:
    """The bodies of the tools. They are sync, and run in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    # -- the tools -------------------------------------------------------------------------------------

    def write(self, ctx: AnyContext, path: str, content: str) -> str:
        """Write a text file in your scratchpad, or replace it as a whole.

        The scratchpad outlives crashes and long conversations: keep drafts, data and findings in it.

        Args:
            path: where, from the top of the scratchpad, like 'notes.md' or 'drafts/letter.md'
            content: all of the file
        """
        name, data = "/".join(split_file_path(path)), _encode(content)
        with open_sandboxed_dir(self._make(ctx)) as folder, folder.locked():
            folder.replace(name, data)
        return f"wrote {name} ({len(data)} bytes)"

    def append(self, ctx: AnyContext, path: str, text: str) -> str:
        """Add lines at the end of a text file in your scratchpad; it is made if there is none.

        Args:
            path: which file, from the top of the scratchpad
            text: what to add; it begins on a line of its own
        """
        if not text:
            raise BadInput("there is nothing to append")
        name = "/".join(split_file_path(path))
        with open_sandboxed_dir(self._make(ctx)) as folder, folder.locked():
            old = folder.find(name)
            new = _append(_decode(name, old or b""), text)
            # Durable before the change, so that `has_appended` knows whether the change was made.
            ctx.annotate(before=_digest(old), after=_digest(new))
            folder.replace(name, new)
        return _appended(name, new)

    def has_appended(self, ctx: AnyContext, path: str, text: str) -> Verification:
        """Whether an interrupted append happened."""
        if "after" not in ctx.notes:
            return NotLanded()
        name = "/".join(split_file_path(path))
        folder_path = self._find(ctx)
        data = None
        if folder_path is not None:
            with open_sandboxed_dir(folder_path) as folder:
                data = folder.find(name)
        if data is not None and _digest(data) == ctx.notes["after"]:
            return Landed(_appended(name, data))
        if _digest(data) == ctx.notes["before"]:
            return NotLanded()
        return Unsure(f"{name} was changed since by another writer")

    def read(self, ctx: AnyContext, path: str, offset: int = 0, limit: int = SCRATCHPAD_PAGE_CHARS) -> str:
        """Read a text file in your scratchpad. A long one comes in pages; the last line says how to go on.

        Args:
            path: which file, from the top of the scratchpad
            offset: how many characters to pass over
            limit: how many characters to read at most
        """
        if offset < 0 or limit < 1:
            raise BadInput("offset is 0 or more, and limit is 1 or more")
        name = "/".join(split_file_path(path))
        text = _decode(name, self._read(ctx, name))
        if not text:
            return f"[{name} is empty]"
        return show_page(name, text, offset, min(limit, SCRATCHPAD_PAGE_CHARS))

    def list_files(self, ctx: AnyContext, path: str = "") -> str:
        """List the files in your scratchpad, with their sizes.

        Args:
            path: a directory in the scratchpad; all of it if left out
        """
        found = self._entries(ctx, path)
        if not found:
            return f"{path} is empty." if path else "The scratchpad is empty."
        lines = [_describe(one) for one in found[:SCRATCHPAD_LISTED_MAX]]
        if len(found) > SCRATCHPAD_LISTED_MAX:
            lines.append(f"[only the first {SCRATCHPAD_LISTED_MAX}: list a directory to see more of it]")
        return "\n".join(lines)

    def delete(self, ctx: AnyContext, path: str) -> str:
        """Delete a file, or an empty directory, in your scratchpad.

        Args:
            path: which one, from the top of the scratchpad
        """
        name = "/".join(split_file_path(path))
        folder_path = self._find(ctx)
        if folder_path is not None:
            with open_sandboxed_dir(folder_path) as folder, folder.locked():
                if folder.delete(name):
                    return f"deleted {name}"
        return f"there is no {name} (any more)"

    # -- the directory ---------------------------------------------------------------------------------

    def _find(self, ctx: AnyContext) -> Path | None:
        """The session's directory; None if it has none yet."""
        recorded, own = ctx.session.scratchpad, self._root / ctx.session.id
        for path in (recorded, own):
            if path is not None and files.lexists(path):
                return path
        if recorded is None:
            return None
        raise NotFound(
            f"the files of this session are in {recorded}, which is not there on this machine. Copy them to "
            f"that place or to {own}; or, to go on without them, make one of the two directories"
        )

    def _make(self, ctx: AnyContext) -> Path:
        """The session's directory. Make and record one if there is none."""
        path = self._find(ctx)
        if path is None:
            path = self._root / ctx.session.id
            try:
                files.make_directory(path)
            except OSError as error:
                raise NotDone(f"the scratchpad {path} cannot be made: {error.strerror}") from error
        if path != ctx.session.scratchpad:
            anyio.from_thread.run(ctx.session.set_scratchpad, path)
        return path

    def _read(self, ctx: AnyContext, name: str) -> bytes:
        folder_path = self._find(ctx)
        if folder_path is None:
            raise NotFound(f"there is no {name!r} in the scratchpad: it is empty")
        with open_sandboxed_dir(folder_path) as folder:
            try:
                return folder.read(name)
            except NotFound as error:
                known = [one.path for one in folder.entries("", SCRATCHPAD_LISTED_MAX)]
                meant = closest(name, known)
                raise NotFound(f"{error}" + (f"; did you mean {meant!r}?" if meant else "")) from error

    def _entries(self, ctx: AnyContext, path: str) -> list[ListedFile]:
        folder_path = self._find(ctx)
        if folder_path is None:
            return []
        with open_sandboxed_dir(folder_path) as folder:
            return folder.entries(path, SCRATCHPAD_LISTED_MAX + 1)


# -- text ----------------------------------------------------------------------------------------------


def _encode(text: str) -> bytes:
    if "\0" in text:
        raise BadInput("only text is kept here, and this holds a NUL character")
    return text.encode()


def _decode(name: str, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name} is not text: byte {error.start} is not UTF-8. Only text can be read here"
        ) from error
    if "\0" in text:
        raise BadInput(f"{name} is not text: it holds NUL characters. Only text can be read here")
    return text


def _append(old: str, text: str) -> bytes:
    lead = "\n" if old and not old.endswith("\n") else ""
    end = "" if text.endswith("\n") else "\n"
    return _encode(f"{old}{lead}{text}{end}")


def _appended(name: str, data: bytes) -> str:
    return f"appended to {name} (now {len(data)} bytes)"


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _describe(one: ListedFile) -> str:
    if one.kind == "a directory":
        return f"{one.path}/"
    return f"{one.path} ({one.bytes} bytes)" if one.kind == "a file" else f"{one.path} ({one.kind})"

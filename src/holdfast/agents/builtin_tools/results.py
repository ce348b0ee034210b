"""A tool with which a model reads the rest of a result that was too long to be shown."""

from __future__ import annotations

import re

from ...content.references import find_digests
from ...engine.engine import Engine
from ...engine.journal import Journal
from ...errors import BadInput, NotFound
from ...limits import RESULT_LINES_MAX, RESULT_PAGE_CHARS
from ...session.session import Session
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, tool

_PREFIX = re.compile(r"[0-9a-f]{8,64}")
_NOTE_CHARS = 200
"""The length of the note under a page."""


def result_tools() -> list[AnyTool]:
    """Make the tool `read_result`, for results longer than the `result_chars` of `open_store`.

    It reads only blobs that its own session refers to. Give it to a `Registry`; calls need a session.
    """
    return [tool(name="read_result", side_effects={"read"})(read_result)]


async def read_result(
    ctx: AnyContext, blob: str, offset: int = 0, limit: int = RESULT_PAGE_CHARS, search: str = ""
) -> str:
    """Read more of a result that was too long to be shown as a whole.

    Args:
        blob: The name that stands where the result was cut.
        offset: The character to begin with.
        limit: How many characters at most.
        search: Show the lines that hold this text instead, each with its offset.
    """
    if offset < 0 or limit < 1:
        raise BadInput("offset must not be negative, and limit at least 1")
    engine = ctx.session._writer.engine
    digest = await _find(ctx.session, blob.strip().lower())
    data = await engine.call_home(engine.blobs.read, digest)
    try:
        text = data.data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"blob {blob} is not text") from None
    most = _page_chars(engine)
    if search:
        return _search(blob, text, search, offset, most)
    return show_page(f"blob {blob}", text, offset, min(limit, most))


def _page_chars(engine: Engine) -> int:
    """The length of a page, which must not be cut short itself."""
    longest = engine.blobs.sizes.result_chars
    return RESULT_PAGE_CHARS if longest is None else max(1, min(RESULT_PAGE_CHARS, longest - _NOTE_CHARS))


async def _find(session: Session, prefix: str) -> str:
    """The digest with this prefix, of a blob of this session."""
    if _PREFIX.fullmatch(prefix) is None:
        raise BadInput(f"{prefix[:80]!r} is not the name of a blob: a name has 8 to 64 hexadecimal digits")
    await session.flush()
    known = await session._writer.engine.call(_list_blobs, session)
    found = [digest for digest in known if digest.startswith(prefix)]
    if not found:
        raise NotFound(f"this session has no blob {prefix}")
    if len(found) > 1:
        raise BadInput(f"{len(found)} blobs begin with {prefix}: give more digits")
    return found[0]


def _list_blobs(session: Session) -> set[str]:
    """The blobs that the session's journal refers to, also before a fork and a rewind."""
    found: set[str] = set()
    for page in Journal(session._writer.engine.driver, session.id).pages(said=True):
        for part in (page.facts, page.details, page.said or b""):
            found |= find_digests(part)
    return found


def _search(blob: str, text: str, wanted: str, offset: int, most: int) -> str:
    """The lines that contain the text, from an offset on, as many as fit a page."""
    shown: list[str] = []
    place, size, hits = 0, 0, 0
    for line in text.splitlines(keepends=True):
        if wanted in line and place >= offset:
            hits += 1
            entry = f"{place}: {line.rstrip()}"
            if len(shown) < RESULT_LINES_MAX and size + len(entry) < most:
                shown.append(entry)
                size += len(entry) + 1
        place += len(line)
    if not hits:
        return f"no line of blob {blob} from offset {offset} on holds {wanted!r}"
    left = hits - len(shown)
    more = f"; {left} more are not shown: narrow the search, or give a later offset" if left else ""
    return "\n".join([*shown, f"[{hits} lines of blob {blob} hold {wanted!r}, each after its offset{more}]"])


def show_page(name: str, text: str, offset: int, limit: int) -> str:
    """Show up to `limit` characters from `offset` on, with a note that says how to go on."""
    if offset >= len(text):
        raise BadInput(f"{name} has {len(text)} characters: there is nothing at offset {offset}")
    end = min(offset + limit, len(text))
    if end < len(text):
        # End the page after a whole line, if there is one.
        end = text.rfind("\n", offset, end) + 1 or end
    page = text[offset:end]
    if offset == 0 and end == len(text):
        return page
    more = f"; go on with offset={end}" if end < len(text) else "; this is the end"
    return f"{page}\n[characters {offset} to {end} of {len(text)} in {name}{more}]"

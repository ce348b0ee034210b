"""A long text, shown to a model page by page."""

from __future__ import annotations

from ...errors import BadInput


def show_page(name: str, text: str, offset: int, limit: int) -> str:
    """Up to `limit` characters from `offset` on, and how to go on."""
    if offset >= len(text):
        raise BadInput(f"{name} has {len(text)} characters: there is nothing at offset {offset}")
    end = min(offset + limit, len(text))
    if end < len(text):
        # Whole lines, where there are any.
        end = text.rfind("\n", offset, end) + 1 or end
    page = text[offset:end]
    if offset == 0 and end == len(text):
        return page
    more = f"; go on with offset={end}" if end < len(text) else "; this is the end"
    return f"{page}\n[characters {offset} to {end} of {len(text)} in {name}{more}]"

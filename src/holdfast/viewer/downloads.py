"""A session as a file: JSON, the entries as JSON lines, Markdown, text, or one HTML page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final

import msgspec
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..adapters.langgraph_threads import fold_thread
from ..cli.console import escape_json
from ..cli.export_formats import Exported, write_markdown, write_text
from ..cli.html_page import make_page, read_page_data
from ..cli.json_views import shape_entry
from ..cli.session_report import read_report, shape_report
from ..cli.store_access import get_thread
from ..cli.thread_page import make_thread_page, read_thread_page
from ..cli.thread_report import read_thread, shape_thread
from ..core.head import Head
from ..drawing.markup import Html, el
from ..store.store import Store
from .addresses import session_link
from .context import viewer_of
from .session_frame import find_subject

FORMS: Final = {
    "html": ("one HTML file", "text/html; charset=utf-8", "html"),
    "markdown": ("Markdown", "text/markdown; charset=utf-8", "md"),
    "text": ("text", "text/plain; charset=utf-8", "txt"),
    "json": ("JSON", "application/json", "json"),
    "jsonl": ("entries as JSON lines", "application/x-ndjson", "jsonl"),
}
"""What a session can be saved as: its name, its media type, the end of the file's name."""


def draw_downloads(request: Request, session: str) -> Html:
    """Links to the session as files."""
    links = [
        el("a", name, href=session_link(request, f"{session}/download/{form}"), download="")
        for form, (name, _, _) in FORMS.items()
    ]
    return el(
        "p",
        el("span", "Save as: ", class_="dim"),
        *(part for link in links for part in (link, " ")),
        class_="note",
    )


async def send_download(request: Request) -> Response:
    """The session as a file to be saved."""
    subject = await find_subject(request)
    form = request.path_params["form"]
    if form not in FORMS:
        raise HTTPException(404, f"There are {', '.join(FORMS)}.")
    viewer = viewer_of(request)
    _, media_type, end = FORMS[form]
    headers = {
        "content-disposition": f'attachment; filename="{subject.session}.{end}"',
        "content-type": media_type,
    }
    if form == "jsonl":
        return StreamingResponse(_iter_lines(viewer.store, subject.session), headers=headers)
    heads = await get_thread(viewer.store, subject.session)
    if form == "html":
        if heads:
            make = partial(make_thread_page, await read_thread_page(viewer.store, heads, viewer.common))
        else:
            make = partial(make_page, await read_page_data(viewer.store, subject.head, viewer.common))
        return Response(await to_thread.run_sync(make), headers=headers)
    if form == "json":
        shape = (
            shape_thread(await read_thread(viewer.store, heads))
            if heads
            else shape_report(await read_report(viewer.store, subject.head, brief=False))
        )
        encoded = await to_thread.run_sync(lambda: msgspec.json.format(msgspec.json.encode(shape), indent=2))
        return Response(encoded, headers=headers)
    write = write_markdown if form == "markdown" else write_text
    exported = await _read(viewer.store, heads[0] if heads else subject.head, is_thread=bool(heads))
    return Response(await to_thread.run_sync(lambda: _join(write(exported))), headers=headers)


def _join(lines: Iterator[str]) -> bytes:
    return "".join(lines).encode(errors="replace")


async def _read(store: Store, head: Head, *, is_thread: bool) -> Exported:
    state = await store.load(head.session)
    if not is_thread:
        return Exported(state=state, entries=())
    entries = [entry async for entry in store.tail(head.session, follow=False)]
    return Exported(state=state, entries=entries, thread=fold_thread(entries))


async def _iter_lines(store: Store, session: str) -> AsyncIterator[bytes]:
    async for entry in store.tail(session, follow=False):
        yield escape_json(msgspec.json.encode(shape_entry(entry)).decode()).encode() + b"\n"

"""The pages of one session, by their addresses."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..cli.store_access import get_thread
from ..errors import BadId, NotFound
from .addresses import session_link
from .context import viewer_of
from .downloads import send_download
from .effects_page import show_effects
from .entries_page import show_entries
from .media import send_blob
from .session_frame import find_subject
from .state_page import show_state
from .thread_pages import (
    find_heads,
    show_checkpoints,
    show_thread,
    show_thread_media,
    show_thread_transcript,
)
from .timeline_page import show_timeline
from .transcript_page import show_media, show_transcript
from .versions_page import do_fork, do_rewind, show_diff, show_fork, show_rewind, show_versions


async def _timeline(request: Request) -> Response:
    try:
        subject = await find_subject(request)
    except (BadId, NotFound):
        return await _find_by_name(request)
    heads = await find_heads(request, subject)
    return await (show_thread(request, subject, heads) if heads else show_timeline(request, subject))


async def _find_by_name(request: Request) -> Response:
    """A thread of LangGraph is named by its thread id, which may be any text."""
    name = request.path_params.get("session") or request.query_params.get("id", "")
    heads = await get_thread(viewer_of(request).store, name)
    if not heads:
        raise HTTPException(404, f"There is no session {name!r} in this store.")
    return RedirectResponse(session_link(request, heads[0].session), 303)


async def _transcript(request: Request) -> Response:
    subject = await find_subject(request)
    heads = await find_heads(request, subject) if subject.is_thread else []
    if heads:
        return await show_thread_transcript(request, subject, heads)
    return await show_transcript(request, subject)


async def _media(request: Request) -> Response:
    subject = await find_subject(request)
    heads = await find_heads(request, subject) if subject.is_thread else []
    return await (show_thread_media(request, heads) if heads else show_media(request))


async def _checkpoints(request: Request) -> Response:
    subject = await find_subject(request)
    heads = await find_heads(request, subject)
    if not heads:
        raise HTTPException(404, "Only threads of LangGraph have checkpoints; other sessions have versions.")
    return await show_checkpoints(request, subject, heads)


async def _effects(request: Request) -> Response:
    return await show_effects(request, await find_subject(request))


async def _state(request: Request) -> Response:
    return await show_state(request, await find_subject(request))


async def _versions(request: Request) -> Response:
    return await show_versions(request, await find_subject(request))


async def _entries(request: Request) -> Response:
    return await show_entries(request, await find_subject(request))


async def _diff(request: Request) -> Response:
    return await show_diff(request, await find_subject(request))


ROUTES: Final[tuple[BaseRoute, ...]] = (
    Route("/threads", _find_by_name),
    Route("/blobs/{digest}", send_blob),
    Route("/sessions/{session}", _timeline),
    Route("/sessions/{session}/transcript", _transcript),
    Route("/sessions/{session}/media", _media),
    Route("/sessions/{session}/effects", _effects),
    Route("/sessions/{session}/state", _state),
    Route("/sessions/{session}/versions", _versions),
    Route("/sessions/{session}/checkpoints", _checkpoints),
    Route("/sessions/{session}/entries", _entries),
    Route("/sessions/{session}/diff", _diff),
    Route("/sessions/{session}/download/{form}", send_download),
    Route("/sessions/{session}/fork", show_fork),
    Route("/sessions/{session}/fork", do_fork, methods=["POST"]),
    Route("/sessions/{session}/rewind", show_rewind),
    Route("/sessions/{session}/rewind", do_rewind, methods=["POST"]),
    # The id of a thread may contain slashes.
    Route("/sessions/{session:path}", _find_by_name),
)

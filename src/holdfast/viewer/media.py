"""The media in messages, served from the viewer itself, and never as something that a browser would run."""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..blobs.blob import open_blob
from ..cli.html_transcript import MediaPlace, list_media
from ..content.lazy import BlobMedia
from ..content.references import SCHEME, parse_reference
from ..drawing.markup import Html, el
from ..messages import AnyMessage, Media
from .addresses import link_to, session_link
from .context import viewer_of
from .page_numbers import read_number
from .session_frame import Subject

_IMAGES: Final = frozenset(
    {"image/avif", "image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp", "image/x-icon"}
)
_SOUND: Final = frozenset(
    {"audio/aac", "audio/flac", "audio/mpeg", "audio/mp4", "audio/ogg", "audio/wav", "audio/webm"}
)
_FILMS: Final = frozenset({"video/mp4", "video/ogg", "video/webm"})
_SHOWN: Final = _IMAGES | _SOUND | _FILMS
"""What a browser decodes and does not run. Everything else (SVG, HTML, PDF) is a download."""
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=31536000, immutable",
}
"""The bytes have their digest in their address, so they never change."""


def draw_media(request: Request, subject: Subject, media: Media, place: MediaPlace) -> Html | None:
    """The media as part of a page; None if only words can say what it is."""
    address = _find_address(request, subject, media, place)
    if address is None:
        return None
    kind, name = _essence(media.media_type), media.name or "media of a message"
    if kind in _IMAGES:
        return el("a", el("img", src=address, alt=name, loading="lazy"), href=address)
    if kind in _SOUND:
        return el("audio", src=address, controls="", preload="none", aria_label=name)
    if kind in _FILMS:
        return el("video", src=address, controls="", preload="none", aria_label=name)
    return el("a", f"download {name}", href=address, download="")


def _find_address(request: Request, subject: Subject, media: Media, place: MediaPlace) -> str | None:
    digest = _digest_of(media)
    if digest is not None:
        return link_to(request, f"/blobs/{digest}", type=media.media_type)
    if isinstance(media, BlobMedia) or media.data is None:
        return None  # It is elsewhere; nothing is loaded from there.
    return session_link(
        request,
        f"{subject.session}/media",
        message=place.message,
        number=place.number,
        sha256=sha256(media.data).hexdigest(),
        version=subject.version,
    )


def _digest_of(media: Media) -> str | None:
    """The blob that the bytes are in, if they are in one."""
    if isinstance(media, BlobMedia):
        return media.reference.digest
    found = parse_reference(media.url) if media.url is not None and media.url.startswith(SCHEME) else None
    return None if found is None else found.digest


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def send_media(messages: list[AnyMessage], request: Request) -> Response:
    """The bytes of media that are in a message itself; `messages` has the one that is asked for, if any."""
    number, wanted = read_number(request, "number"), request.query_params.get("sha256")
    found = [one for message in messages for one in list_media(message)]
    if number is None or number >= len(found):
        raise HTTPException(404, "There is no such medium in this message.")
    media = found[number]
    data = None if isinstance(media, BlobMedia) else media.data
    if data is None or sha256(data).hexdigest() != wanted:
        raise HTTPException(404, "The message is another one by now.")
    return Response(data, headers=_describe(media.media_type, media.name or f"media-{number}"))


async def send_blob(request: Request) -> Response:
    """The bytes of a blob, in parts."""
    opened = await open_blob(viewer_of(request).store._engine, request.path_params["digest"])
    blob = opened.blob
    kind = request.query_params.get("type") or blob.media_type
    headers = {**_describe(kind, blob.name or blob.digest[:12]), "content-length": str(blob.size)}
    return StreamingResponse(opened, headers=headers)


def _describe(media_type: str, name: str) -> dict[str, str]:
    """The headers of bytes: their type if a browser only decodes it, else they are to be saved."""
    kind = _essence(media_type)
    if kind in _SHOWN:
        return {**_HEADERS, "content-type": kind, "content-disposition": "inline"}
    saved = f"attachment; filename*=UTF-8''{quote(name.encode(errors='replace'), safe='')}"
    return {**_HEADERS, "content-type": "application/octet-stream", "content-disposition": saved}

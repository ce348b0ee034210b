"""Public URLs of blobs, so that a model can be given a link in the place of bytes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias
from urllib.parse import quote

import anyio.to_thread
from msgspec import Struct

from ..errors import BadInput
from ..limits import BLOB_URL_S
from ..redact import show_url
from .home import BlobContext, BlobHome, ReadOnlyHome, StoreHome

UrlFunction: TypeAlias = Callable[[str, BlobContext], str | Awaitable[str | None] | None]
"""From a reference, `media+sha256://<hex>`, and what is known of the blob to a URL; sync or async."""


class PresignedUrls(Struct, frozen=True):
    """URLs that an object store signs, at which the blob can be read for `valid_s` seconds."""

    valid_s: float = BLOB_URL_S


PublicUrls: TypeAlias = str | PresignedUrls | UrlFunction
"""A base under which the home's files are served; signed URLs; or a function of the user's."""


def check_urls(urls: PublicUrls) -> PublicUrls:
    """Refuse what cannot become a URL, before one is needed."""
    if isinstance(urls, str) and not urls.startswith(("https://", "http://")):
        raise BadInput(f"blob_urls={show_url(urls)} must begin with https:// or http://")
    if isinstance(urls, PresignedUrls) and not 0 < urls.valid_s <= 7 * 24 * 3600:
        raise BadInput(f"valid_s={urls.valid_s:g}: a signed URL is valid for up to seven days")
    if not isinstance(urls, str | PresignedUrls) and not callable(urls):
        raise BadInput(f"blob_urls: {show_url(urls)} is neither a URL, nor PresignedUrls(…), nor a function")
    return urls


def check_home(urls: PublicUrls, home: BlobHome) -> None:
    """Refuse URLs that no blob of this home would ever have."""
    if has_urls(urls, home):
        return
    if isinstance(urls, str):
        raise BadInput(
            f"blob_urls is a base URL, and blobs in {home.name} have no paths below one: give it a home "
            "that a server publishes (blobs='dir:PATH' or 's3://bucket/prefix'), or a function as blob_urls"
        )
    raise BadInput(
        f"blob_urls=PresignedUrls(…): {home.name} cannot sign URLs; only an object store can "
        "(blobs='s3://bucket/prefix')"
    )


def has_urls(urls: PublicUrls, home: BlobHome) -> bool:
    """Whether blobs of this home can have URLs at all, as far as can be told before there is one."""
    from .directory import DirectoryHome  # Not loaded by stores without one.

    if isinstance(home, ReadOnlyHome):
        home = home.home
    if isinstance(urls, str):
        return not isinstance(home, StoreHome)
    return not (isinstance(urls, PresignedUrls) and isinstance(home, StoreHome | DirectoryHome))


async def find_url(urls: PublicUrls, home: BlobHome, digest: str) -> str | None:
    """A URL of the blob, or None if it is not there or there is none for it."""
    if isinstance(urls, str):
        key = await anyio.to_thread.run_sync(home.find_key, digest, abandon_on_cancel=True)
        return f"{urls.rstrip('/')}/{quote(key)}" if key is not None else None
    if isinstance(urls, PresignedUrls):
        sign = partial(home.sign, digest, valid_s=urls.valid_s)
        return await anyio.to_thread.run_sync(sign, abandon_on_cancel=True)
    found = await anyio.to_thread.run_sync(home.find, digest, abandon_on_cancel=True)
    if found is None:
        return None
    reference = f"media+sha256://{digest}"
    if inspect.iscoroutinefunction(urls):
        url = await urls(reference, found.context)
    else:
        # In a thread: it may well ask a server. In a tuple: it may well give something to await.
        (url,) = await anyio.to_thread.run_sync(
            lambda: (urls(reference, found.context),), abandon_on_cancel=True
        )
        if inspect.isawaitable(url):
            url = await url
    if url is not None and not isinstance(url, str):
        raise BadInput(
            f"the function in blob_urls gave {show_url(url)} for blob {digest}: not a URL, and not None"
        )
    return url

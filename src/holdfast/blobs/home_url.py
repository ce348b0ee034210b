"""From a URL to a home. A typo is an error, never a silent fallback."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from ..drivers.contract import Driver
from ..drivers.url import refuse_unencodable
from ..errors import BadInput, BadUrl
from ..redact import has_credentials, show_corrected, show_scheme, show_url
from ..suggestions import closest
from .home import BlobHome
from .keys import KeyFunction
from .options import ObjectOptions

OpenHome: TypeAlias = Callable[[Driver], BlobHome]

_BUCKET = re.compile(r"[\w.$-]+")
_OBJECTS = {"s3": "s3://bucket/prefix", "gs": "gs://bucket/prefix", "az": "az://container/prefix"}
_KNOWN = {"dir": "dir:PATH", **_OBJECTS}
# What other tools call them.
_OTHERWISE = {"gcs": "gs", "s3a": "s3", "azure": "az", "abfs": "az", "abfss": "az", "file": "dir"}


def find_home(home: str | BlobHome | None, *, create: bool) -> OpenHome:
    """How to open the home of a store with this driver, by default its own; nothing is opened yet."""
    if home is None:
        return lambda driver: driver.blobs
    if isinstance(home, str):
        opener = _find_opener(home, None, create, ObjectOptions())
        return lambda driver: opener()
    if not hasattr(home, "find_key"):
        raise BadUrl(
            f"{show_url(home)} is no home of blobs: pass a URL such as 's3://bucket/prefix', or a home"
        )
    given = home
    return lambda driver: given


def open_home(
    url: str,
    *,
    key: KeyFunction | None = None,
    create: bool = True,
    endpoint: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
    profile: str | None = None,
    options: Mapping[str, str | bool] | None = None,
) -> BlobHome:
    """The home that `url` names: `dir:PATH`, `s3://bucket/prefix`, `gs://…` or `az://container/prefix`.

    `key` says where blobs lie in it, by default by their digests. The rest is for object stores, which
    otherwise are told by the environment as their own tools are: `endpoint` and `path_style` for servers that
    are not Amazon's, `profile` of the AWS configuration, and in `options` whatever else obstore knows for
    this kind of store, credentials among it.
    """
    objects = ObjectOptions(
        endpoint=endpoint, region=region, path_style=path_style, profile=profile, options=options or {}
    )
    return _find_opener(url, key, create, objects)()


def _find_opener(
    url: str, key: KeyFunction | None, create: bool, options: ObjectOptions
) -> Callable[[], BlobHome]:
    refuse_unencodable(url, "the URL of the home of blobs")
    scheme, colon, rest = url.partition(":")
    if not colon:
        meant = f"did you mean {show_corrected('dir', url)} or {show_corrected('s3', f'//{url}')}?"
        raise BadUrl(f"{show_url(url)} names no scheme; {meant}")
    if scheme not in _KNOWN:
        raise BadUrl(f"unknown scheme {show_scheme(url)!r} in {show_url(url)}; {_hint(scheme, rest)}")
    if "\0" in url:
        raise BadUrl(f"{show_url(url)} holds a NUL character")
    if scheme == "dir":
        return _directory_opener(url, rest, key, create, options)
    return _object_opener(url, scheme, key, options)


def _hint(scheme: str, rest: str) -> str:
    if scheme in ("memory", "sqlite", "postgresql", "postgres"):
        return "blobs are in the store itself when no home is named"
    lower = scheme.lower()
    # The schemes are short: one wrong character of two makes half a difference.
    close = _OTHERWISE.get(lower) or closest(lower, _KNOWN, similarity_min=0.5)
    if close:
        return f"did you mean {show_corrected(close, rest)}?"
    return f"known are {', '.join(list(_KNOWN.values())[:-1])} and {_KNOWN['az']}"


def _directory_opener(
    url: str, rest: str, key: KeyFunction | None, create: bool, options: ObjectOptions
) -> Callable[[], BlobHome]:
    shown = show_url(url)
    if options != ObjectOptions():
        raise BadInput(f"{shown}: endpoint, region, path_style, profile and options are for object stores")
    if rest.startswith("//"):
        path = rest.lstrip("/")
        raise BadUrl(
            f"{shown}: no slashes after the scheme; {show_corrected('dir', path)} is relative, "
            f"{show_corrected('dir', f'/{path}')} is absolute"
        )
    if not rest.strip():
        raise BadUrl(f"{shown} has no path; write for example 'dir:blobs'")
    if "?" in rest:
        raise BadUrl(
            f"{shown}: dir: takes no parameters; a function for the keys goes to open_home(…, key=…)"
        )
    if has_credentials(rest):
        raise BadUrl(f"{shown}: a path follows 'dir:', not a URL nor a user and password")

    def open_directory() -> BlobHome:
        from .directory import DirectoryHome

        return DirectoryHome(Path(rest).expanduser(), key=key, create=create)

    return open_directory


def _object_opener(
    url: str, scheme: str, key: KeyFunction | None, options: ObjectOptions
) -> Callable[[], BlobHome]:
    shown = show_url(url)
    try:
        split = urlsplit(url)
        malformed = False
    except ValueError:  # It quotes what it does not understand.
        malformed = True
    if malformed or not url.startswith(f"{scheme}://") or not split.netloc:
        raise BadUrl(f"{shown} names no bucket; write '{_OBJECTS[scheme]}'")
    if split.query or split.fragment or url.endswith(("?", "#")):
        raise BadUrl(f"{shown}: options do not go into the URL; give them to open_home(…)")
    if "@" in split.netloc or ":" in split.netloc:
        raise BadUrl(
            f"{scheme}://…: neither credentials nor a port go into the URL; give them to open_home(…)"
        )
    if not _BUCKET.fullmatch(split.netloc):
        raise BadUrl(
            f"{scheme}://…: the name of a bucket has letters, digits, '.', '-', '_' and '$' only; "
            f"write '{_OBJECTS[scheme]}'"
        )
    prefix = split.path.strip("/")
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise BadUrl(f"{shown}: no part of the prefix may be empty, '.' or '..'")
    options.check(shown, scheme)

    def open_objects() -> BlobHome:
        from .bucket import connect
        from .object_store import ObjectHome

        # A prefix may hold anything; not all of it is for people's eyes.
        name = url.rstrip("/") if shown == repr(url) else f"{scheme}://{split.netloc}/…"
        return ObjectHome(connect(scheme, split.netloc, prefix, options, name), name, key=key)

    return open_objects

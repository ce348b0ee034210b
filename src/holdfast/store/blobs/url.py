"""From a URL to a home. A typo is an error, never a silent fallback."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from ...errors import BadInput, BadUrl
from ..driver import Driver
from ..url import refuse_unencodable
from .driver import DriverHome
from .home import BlobHome
from .keys import KeyFunction
from .options import ObjectOptions

OpenHome: TypeAlias = Callable[[Driver], BlobHome]

_OBJECTS = {"s3": "s3://bucket/prefix", "gs": "gs://bucket/prefix", "az": "az://container/prefix"}
_KNOWN = {"dir": "dir:PATH", **_OBJECTS}
# What other tools call them.
_OTHERWISE = {"gcs": "gs", "s3a": "s3", "azure": "az", "abfs": "az", "abfss": "az", "file": "dir"}


def find_home(home: str | BlobHome | None, *, create: bool) -> OpenHome:
    """How to open the home of a store with this driver, by default its own; nothing is opened yet."""
    if home is None:
        return DriverHome
    if isinstance(home, str):
        opener = _find_opener(home, None, create, ObjectOptions())
        return lambda driver: opener()
    if not hasattr(home, "find_key"):
        raise BadUrl(f"{home!r} is no home of blobs: pass a URL such as 's3://bucket/prefix', or a home")
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
        raise BadUrl(f"{url!r} names no scheme; did you mean 'dir:{url}' or 's3://{url}'?")
    if scheme not in _KNOWN:
        raise BadUrl(f"unknown scheme {scheme!r} in {url!r}; {_hint(scheme, rest)}")
    if "\0" in url:
        raise BadUrl(f"{url!r} holds a NUL character")
    if scheme == "dir":
        return _directory_opener(url, rest, key, create, options)
    return _object_opener(url, scheme, key, options)


def _hint(scheme: str, rest: str) -> str:
    if scheme in ("memory", "sqlite", "postgresql", "postgres"):
        return "blobs are in the store itself when no home is named"
    lower = scheme.lower()
    close = _OTHERWISE.get(lower) or next(
        iter(difflib.get_close_matches(lower, _KNOWN, n=1, cutoff=0.5)), None
    )
    if close:
        return f"did you mean '{close}:{rest}'?"
    return f"known are {', '.join(list(_KNOWN.values())[:-1])} and {_KNOWN['az']}"


def _directory_opener(
    url: str, rest: str, key: KeyFunction | None, create: bool, options: ObjectOptions
) -> Callable[[], BlobHome]:
    if options != ObjectOptions():
        raise BadInput(f"{url!r}: endpoint, region, path_style, profile and options are for object stores")
    if rest.startswith("//"):
        path = rest.lstrip("/")
        raise BadUrl(
            f"{url!r}: no slashes after the scheme; 'dir:{path}' is relative, 'dir:/{path}' is absolute"
        )
    if not rest.strip():
        raise BadUrl(f"{url!r} has no path; write for example 'dir:blobs'")

    def open_directory() -> BlobHome:
        from .directory import DirectoryHome

        return DirectoryHome(Path(rest).expanduser(), key=key, create=create)

    return open_directory


def _object_opener(
    url: str, scheme: str, key: KeyFunction | None, options: ObjectOptions
) -> Callable[[], BlobHome]:
    split = urlsplit(url)
    if not url.startswith(f"{scheme}://") or not split.netloc:
        raise BadUrl(f"{url!r} names no bucket; write '{_OBJECTS[scheme]}'")
    if split.query or split.fragment or url.endswith(("?", "#")):
        raise BadUrl(f"{url!r}: options do not go into the URL; give them to open_home(…)")
    if "@" in split.netloc or ":" in split.netloc:
        raise BadUrl(
            f"{scheme}://…: neither credentials nor a port go into the URL; give them to open_home(…)"
        )
    prefix = split.path.strip("/")
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise BadUrl(f"{url!r}: no part of the prefix may be empty, '.' or '..'")
    options.check(url, scheme)

    def open_objects() -> BlobHome:
        from .bucket import connect
        from .objects import ObjectHome

        name = url.rstrip("/")
        return ObjectHome(connect(scheme, split.netloc, prefix, options, name), name, key=key)

    return open_objects

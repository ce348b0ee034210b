"""URLs for errors, logs and terminals, without their secrets.

A URL that can be parsed is shown without its password. One that cannot be parsed is shown only if it has the
form of a path or bucket: in a URL with a mistake, any part may be the password.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from .suggestions import closest

_SCHEMES: Final = ("memory", "dir", "sqlite", "postgresql", "postgres", "s3", "gs", "az")
_OTHERS: Final = ("pg", "http", "https", "file", "redis", "mysql", "gcs", "s3a", "azure", "abfs", "abfss")
_PLAIN: Final = ("dir", "sqlite", "memory", "s3", "gs", "az", *_OTHERS[6:], "file")
"""Schemes that are followed by a path or a bucket, which have no password."""

_NO_PATH: Final = re.compile(r"[@:?#=&;%\"<>|\\]|//")
"""Characters that are unusual in a path, and in most URLs with a password."""

_CREDENTIALS: Final = re.compile(r"pass(word|wd)?\s*=|:.*@|://", re.IGNORECASE | re.DOTALL)

_TOKEN: Final = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[\w:.~+%=-]{20,}")
"""A part of a path that may be a token, as in the addresses of webhooks: long, with letters of both cases and
digits. Ids in hex and UUIDs have letters of one case."""

_IN_TEXT: Final = (
    (re.compile(r"([\w.%+-]*:)(?!/)[^\s\"']*@"), r"\1…@"),
    (re.compile(r"(\w://[^\s?#\"']*)[?#][^\s\"')]*"), r"\1?…"),
    (re.compile(r"((?:pass(?:word|wd)?|secret|token|sig|signature)\s*=\s*)[^\s&;]+", re.IGNORECASE), r"\1…"),
)


def has_credentials(text: str) -> bool:
    """Whether the text may contain a user name and password, or another URL."""
    return bool(_CREDENTIALS.search(text))


def find_scheme(scheme: str) -> str | None:
    """The known scheme that a misspelt, spelt out or shortened one stands for."""
    return closest(scheme, _SCHEMES)


def show_scheme(url: str) -> str:
    """The text before the first colon, if it is a scheme, similar to one, or too short for a secret."""
    scheme, colon, _ = url.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z0-9+]+", scheme):
        return ""
    return scheme if len(scheme) < 5 or scheme.lower() in _OTHERS or find_scheme(scheme) else ""


def show_url(url: object) -> str:
    """The URL in quotes, or the part of it that holds no secret."""
    if isinstance(url, PurePath):
        url = str(url)
    if not isinstance(url, str):
        return f"an object of type {type(url).__name__}"
    scheme, colon, rest = url.partition(":")
    if not colon:
        return repr(url) if not _NO_PATH.search(url) else "'…'"
    is_plain = not scheme or scheme.lower() in _PLAIN or find_scheme(scheme) in _PLAIN
    if is_plain and not _NO_PATH.search(rest.lstrip("/")):
        return repr(url)
    return f"'{show_scheme(url)}:…'"


def show_corrected(scheme: str, rest: str) -> str:
    """The URL with this scheme, in quotes, if it can be shown; else the form of such a URL."""
    meant = f"{scheme}:{rest}"
    if show_url(meant) == repr(meant):
        return f"'{meant}'"
    return f"'{scheme}://bucket/prefix'" if scheme in ("s3", "gs", "az") else f"'{scheme}:PATH'"


def without_password(url: str) -> str:
    """The URL of an open store, without its password: it can be shown, and used again with PGPASSWORD or a
    password file."""
    if not url.startswith(("postgresql://", "postgres://")):
        return url
    base, mark, query = url.partition("?")
    scheme, _, place = base.partition("://")
    user, at, host = place.rpartition("@")
    kept = [one for one in query.split("&") if not one.lower().startswith(("password=", "sslpassword="))]
    return f"{scheme}://{user.partition(':')[0]}{at}{host}" + (mark + "&".join(kept) if any(kept) else "")


def show_address(url: str) -> str:
    """The address of an HTTP request without what may be a secret: user name and password, the values in the
    query, the fragment, and parts of the path that look like tokens."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "…"
    place = _show_place(host, port)
    path = "/".join("…" if _TOKEN.fullmatch(part) else part for part in parts.path.split("/"))
    values = [one.partition("=") for one in parts.query.split("&")] if parts.query else []
    query = "&".join(f"{name}=…" if mark else "…" for name, mark, _ in values)
    return f"{parts.scheme}://{place}{path}" + (f"?{query}" if query else "")


def show_origin(url: str) -> str:
    """The scheme, host and port of an address. The path of a webhook may be its password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "…"
    return f"{parts.scheme}://{_show_place(host, port)}/…"


def _show_place(host: str, port: int | None) -> str:
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")


def find_secrets(arguments: Iterable[str]) -> list[str]:
    """Possible passwords in the arguments of a command line, the longest first."""
    found: set[str] = set()
    for one in arguments:
        value = one.partition("=")[2] if one.startswith("--") else one
        if "@" in value:
            user = value.rpartition("@")[0]
            user = user.partition("//")[2] or user
            password = user.partition(":")[2]
            # The whole, and the parts that an error message may quote.
            found |= {password, *re.split(r"[:@/?#&=]+", password)}
        found |= set(re.findall(r"pass(?:word|wd)?=([^&\s]*)", value, re.IGNORECASE))
        if "://" in value and show_url(value) != repr(value):
            found.add(value)
    return sorted((one for one in found if len(one) > 2), key=len, reverse=True)


def scrub(text: str, *secrets: object) -> str:
    """The message of another library, without these secrets and without secrets in URLs."""
    for secret in secrets:
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "…")
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


# -- what was said in a session, before it is written into a file that is kept with the code --------------

LEFT_OUT: Final = "[left out: it looks like a secret]"

_NAME: Final = (
    r"(?i:pass(?:word|wd|phrase|code)|secret|token|credentials?|authorization"
    r"|(?:api|access|secret|private|signing|encryption)[_-]?key"
    r"|(?:(?<![a-z])|(?-i:(?<=[a-z])(?=P)))(?:pass|pwd))\d*(?![\w])"
)
"""The end of a name of what is secret: `password`, `accessToken`, `DB_PASS`, `client_secret`."""
_NAMED: Final = (
    r"\s*(?:[=:]|=>|:=)\s*(?P<quote>\\*[\"'])?(?!\[left out: )"
    r"(?P<value>(?(quote)(?:(?!(?P=quote))(?:\\.|[^\n]))+|[^\s,;&\"'\\]{4,}))"
)
"""What follows a name: `="…"`, `: …`, also where the quotes are escaped, as in JSON that is text of JSON."""


def _is_bearer(token: str) -> bool:
    """Whether the word after `Bearer` is no word of a language."""
    return bool(re.search(r"\d|[a-z][A-Z]|[\w~+]=|[._~+]\w", token))


def _is_basic(token: str) -> bool:
    """Whether the word after `Basic` is a user name and a password in base64."""
    try:
        return b":" in base64.b64decode(token, validate=True)
    except ValueError:
        return False


class _Secret(NamedTuple):
    """What a secret looks like. The group `value`, if there is one, is the secret in what is found."""

    kind: str
    pattern: re.Pattern[str]
    confirm: Callable[[str], bool] = bool

    def leave_out(self, found: re.Match[str]) -> str:
        """What is written in the place of the text that was found."""
        value = "value" if self.pattern.groupindex else 0
        if not self.confirm(found[value]):
            return found[0]
        first, last = found.span(value)
        return found[0][: first - found.start()] + LEFT_OUT + found[0][last - found.start() :]


_SECRETS: Final = (
    _Secret(
        "a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END[^-]*-----|\Z)")
    ),
    _Secret("a key of an API", re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}")),
    _Secret(
        "a key of an API", re.compile(r"\b(?:gh[opsur]|github_pat|glpat|hf|npm|pypi)[-_][A-Za-z0-9_-]{16,}")
    ),
    _Secret(
        "a key of an API",
        re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bxox[abeoprs]-[\w-]{10,}"),
    ),
    _Secret("a JSON web token", re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*")),
    _Secret(
        "credentials of a request",
        re.compile(
            r"(?i:authorization)\\*[\"']?\s*[:=]\s*\\*[\"']?(?!\[left out: )"
            r"(?P<value>(?i:bearer|basic|token|apikey|digest|negotiate)\s+[^\s,;\"'\\]{4,})"
        ),
    ),
    _Secret("a bearer token", re.compile(r"\b(?i:bearer)\s+(?P<value>[\w.~+/=-]{8,})"), _is_bearer),
    _Secret("a user name and password", re.compile(r"\b(?i:basic)\s+(?P<value>[\w+/=]{8,})"), _is_basic),
    _Secret("a URL with a password", re.compile(r"\w://[^\s/:@\"']*:[^\s/@\"']+@")),
    _Secret("a password or token", re.compile(rf"{_NAME}\\*[\"']?{_NAMED}")),
    _Secret(
        "a password or token",
        re.compile(rf"(?<![A-Za-z])(?i:sig(?:nature)?)\b\\*[\"']?{_NAMED}"),
    ),
    _Secret(
        "a long token",
        re.compile(
            r"(?<![\w+/=-])(?=[\w+/=-]*[a-z])(?=[\w+/=-]*[A-Z])(?=[\w+/=-]*[0-9])[A-Za-z0-9_+/=-]{24,}"
        ),
    ),
)
_SECRET_NAME: Final = re.compile(rf"{_NAME}\Z")
_SHORT_NUMBER: Final = 1000
"""Below it, a number is no secret, whatever its name."""


class SecretFound(NamedTuple):
    """Something that looks like a secret: where it is, and what it looks like."""

    where: str
    kind: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}"


def find_secret(text: str) -> str | None:
    """What a part of the text looks like, if it looks like a secret. Text that is JSON is looked through."""
    plain = _decode(text)
    if plain is not None:
        return next((one.kind for one in iter_secrets(plain)), None)
    for secret in _SECRETS:
        for found in secret.pattern.finditer(text):
            if secret.leave_out(found) != found[0]:
                return secret.kind
    return None


def iter_secrets(value: Any, where: str = "") -> Iterator[SecretFound]:
    """What looks like a secret in plain data: strings, and the values of fields with such names."""
    if isinstance(value, str):
        kind = find_secret(value)
        if kind is not None:
            yield SecretFound(where, kind)
    elif isinstance(value, dict):
        for key, item in value.items():
            place = f"{where}.{key}" if where else key
            for found in iter_secrets(key):
                yield SecretFound(f"a key of {where}", found.kind)
            if is_secret_name(key) and _blank(item) != item:
                yield SecretFound(place, f"the value of {key!r}")
            else:
                yield from iter_secrets(item, place)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from iter_secrets(item, f"{where}[{number}]")


def leave_out_secrets(text: str) -> str:
    """The text with `LEFT_OUT` in the place of each part that looks like a secret. JSON stays JSON."""
    plain = _decode(text)
    if plain is not None:
        cleaned = without_secrets(plain)
        if cleaned == plain:
            return text
        indent, separators = (
            (2, None) if "\n" in text.strip() else (None, None if '": ' in text else (",", ":"))
        )
        return json.dumps(cleaned, ensure_ascii=text.isascii(), indent=indent, separators=separators)
    for secret in _SECRETS:
        text = secret.pattern.sub(secret.leave_out, text)
    return text


def without_secrets(value: Any) -> Any:
    """Plain data with `LEFT_OUT` in the place of what `iter_secrets` finds in it, and zero for numbers."""
    if isinstance(value, str):
        return leave_out_secrets(value)
    if isinstance(value, dict):
        return {
            leave_out_secrets(key): _blank(item) if is_secret_name(key) else without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return value


def is_secret_name(name: str) -> bool:
    """Whether a field with this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def _blank(value: Any) -> Any:
    """What a field with such a name holds, without it."""
    if isinstance(value, str):
        return LEFT_OUT if value else value
    if isinstance(value, dict):
        return {leave_out_secrets(key): _blank(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_blank(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= _SHORT_NUMBER:
        return 0
    return value


def _decode(text: str) -> Any:
    """The object or list that the text is in JSON; None if it is other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text, object_pairs_hook=_as_object)
    except (ValueError, RecursionError):
        return None


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands there twice, and each value may be a secret")
    return made

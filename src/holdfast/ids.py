"""Identifiers: their alphabet, new ones, foreign ones that fit; and checks of names, labels and lists."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import NewType, TypeVar

from .errors import BadId, BadInput, NotAList
from .limits import LABEL_BYTES_MAX, NAME_CHARS
from .system import processes, randomness

SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)
HolderId = NewType("HolderId", str)
Given = TypeVar("Given", bound=Iterable[object])

_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"\.([0-9a-f]{2,6})\.")
_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")


def _check(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadId(what, value, f"must be a string, not {type(value).__name__}")
    if value in (".", ".."):
        raise BadId(what, value, "would name a directory")
    if not value:
        raise BadId(what, value, "must not be empty")
    if not _ID.fullmatch(value):
        if len(value) > 200:
            raise BadId(what, value[:20] + "…", f"has {len(value)} characters; 200 are allowed")
        bad = next(c for c in value if not _ID.fullmatch(c))
        raise BadId(what, value, f"holds {bad!r} (U+{ord(bad):04X}); allowed are A-Z a-z 0-9 _ . -")
    return value


def session_id(value: object) -> SessionId:
    """Return `value` as a session id, or raise `BadId`."""
    return SessionId(_check("session id", value))


def run_id(value: object) -> RunId:
    """Return `value` as a run id, or raise `BadId`."""
    return RunId(_check("run id", value))


class RandomPool:
    """Random bytes, fetched in bulk: each call to the kernel releases the interpreter lock."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: list[bytes] = []
        # A child process must not use the same bytes as its parent.
        processes.register_at_fork(after_in_child=self._pool.clear)

    def take(self) -> bytes:
        """`size` random bytes that no other call gets."""
        try:
            return self._pool.pop()
        except IndexError:
            size = self._size
            data = randomness.urandom(256 * size)
            self._pool.extend([data[i : i + size] for i in range(size, len(data), size)])
            return data[:size]


_call_ids = RandomPool(8)


def fresh_call_id() -> str:
    """A call id that is unique in its session."""
    return f"call-{_call_ids.take().hex()}"


def fresh_run_id(agent: str | None) -> RunId:
    """`{agent}-{8 hex}` if the agent has a name that fits into an id, else a UUID."""
    if agent and _ID.fullmatch(agent) and len(agent) <= 180:
        return RunId(f"{agent}-{randomness.token_hex(4)}")
    return RunId(str(randomness.uuid4()))


def fresh_session_id(agent: str | None) -> SessionId:
    """`{agent}-{8 hex}` if the agent has a name that fits into an id, else `session-{8 hex}`."""
    fits = agent is not None and _ID.fullmatch(agent) and len(agent) <= 180
    return SessionId(f"{agent if fits else 'session'}-{randomness.token_hex(4)}")


def fresh_uid() -> str:
    """A random name that is unique among sessions, holders and salts."""
    return randomness.token_hex(16)


def fit_session_id(foreign: str) -> SessionId:
    """Any string as a session id: unchanged if it fits, else escaped (`unfit_session_id` reverses it).

    A foreign id that would be too long becomes a digest; keep the original as a label, with
    `label_of_original`. No two strings have the same id.
    """
    looks_like_ours = _ESCAPED.search(foreign) or _DIGEST.fullmatch(foreign)
    if _ID.fullmatch(foreign) and foreign not in (".", "..") and not looks_like_ours:
        return SessionId(foreign)
    escaped = f".73.{foreign[1:]}" if _DIGEST.fullmatch(foreign) else escape_id(foreign)
    if escaped and len(escaped) <= 200:
        return SessionId(escaped)
    return SessionId("sha256-" + hashlib.sha256(foreign.encode("utf-8", "surrogatepass")).hexdigest())


def escape_id(foreign: str) -> str:
    """Escape all but letters, digits, `_` and `-`; `unfit_session_id` reverses it."""
    return _UNSAFE.sub(lambda match: f".{ord(match[0]):02x}.", foreign)


def unfit_session_id(fitted: str) -> str:
    """The foreign id that `fit_session_id` escaped (digests stay as they are)."""
    return _ESCAPED.sub(_unescape, fitted)


def _unescape(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if code <= sys.maxunicode else match[0]  # Not one of our escapes.


def check_name(what: str, name: object) -> str:
    """The name of a state key or shared resource, or `BadInput`: any readable text up to 200 characters."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS:
        raise BadInput(f"a {what} is text of 1 to {NAME_CHARS} characters, not {name!r}")
    return check_text(what, name)


def check_text(what: str, text: str) -> str:
    """The text, or `BadInput` if UTF-8 cannot encode it: half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{what} {text!r} holds half a surrogate pair, which is no text") from None
    return text


def label_of_original(foreign: str) -> str:
    """A foreign id as the value of a label, with escapes for characters that cannot be printed. One of more
    than 2,000 bytes is cut, and ends with `…` and a digest of the whole."""
    text = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in foreign)
    if _label_bytes(text) <= LABEL_BYTES_MAX:
        return text
    end = f"…{hashlib.sha256(foreign.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    cut = text[:LABEL_BYTES_MAX]
    while _label_bytes(cut + end) > LABEL_BYTES_MAX:
        cut = cut[: len(cut) * 9 // 10]
    return cut + end


def _label_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def check_labels(labels: Mapping[str, object]) -> dict[str, str]:
    """The labels, or `BadInput`: keys and values are short printable text. A value may be a foreign id."""
    for key, value in labels.items():
        for text in (key, value):
            if not isinstance(text, str) or not text or not text.isprintable():
                raise BadInput(f"label {key!r}={value!r}: both are printable text, and not empty")
        if len(key) > NAME_CHARS or _label_bytes(str(value)) > LABEL_BYTES_MAX:
            raise BadInput(
                f"label {key[:40]!r}={str(value)[:40]!r}: a key has up to {NAME_CHARS} characters, "
                f"and a value up to {LABEL_BYTES_MAX} bytes as JSON"
            )
    return {key: str(value) for key, value in labels.items()}


def check_list(name: str, given: Given) -> Given:
    """The list that was given as `name`; `NotAList` for a text, which would be taken for its letters."""
    if isinstance(given, str | bytes):
        raise NotAList(name, given)
    return given

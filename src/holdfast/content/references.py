"""`media+sha256://<hex>`: the reference in a content to bytes that are kept as a blob.

A reference says how its bytes were written, so that they can be put back exactly:

    media+sha256://<hex>                                 base64, as in a block of ours
    media+sha256://<hex>?as=base64url                    the other alphabet; `-bare`: without padding
    media+sha256://<hex>?after=data%3Aimage%2Fpng%3Bbase64%2C    … behind the beginning of a data URL
    media+sha256://<hex>?as=text                         a long text; `json`: a value

A string that only looks like a reference is stored with `verbatim:` after the scheme's colon, so user content
is never taken for a reference.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from ..errors import BadInput, NewerFormat
from ..messages import Json

SCHEME: Final = "media+sha256:"
MARK: Final = SCHEME.encode()
"""A content without it has neither references nor strings that look like one."""
_VERBATIM: Final = f"{SCHEME}verbatim:"

Form: TypeAlias = Literal["base64", "base64-bare", "base64url", "base64url-bare", "text", "json"]
_FORMS: Final[Mapping[str, Form]] = {form: form for form in get_args(Form)}
_REFERENCE = re.compile(r"media\+sha256://([0-9a-f]{64})(?:\?as=([a-z0-9-]+))?(?:[?&]after=(.*))?")
_ANYWHERE = re.compile(rb"media\+sha256:(?:verbatim:)*\\?/\\?/([0-9a-f]{64})")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


class Reference(Struct, frozen=True):
    """A blob, and how its bytes are written in the content."""

    digest: str
    form: Form = "base64"
    prefix: str = ""

    def __str__(self) -> str:
        query = [] if self.form == "base64" else [f"as={self.form}"]
        query += [f"after={quote(self.prefix, safe='')}"] if self.prefix else []
        return f"{SCHEME}//{self.digest}" + (f"?{'&'.join(query)}" if query else "")

    def put_back(self, data: bytes) -> Json:
        """The original value in the content."""
        match self.form:
            case "text":
                return self.prefix + data.decode()
            case "json":
                return msgspec.json.decode(data)
            case _:
                return self.prefix + _to_text(data, self.form)


def digest_of(data: bytes) -> str:
    """The SHA-256 digest of these bytes, in hex: the name of the blob."""
    return sha256(data).hexdigest()


def parse_reference(text: str) -> Reference | None:
    """The stored string as a reference, or None; `NewerFormat` if this version cannot read it."""
    if not text.startswith(SCHEME) or text.startswith(_VERBATIM):
        return None
    found = _REFERENCE.fullmatch(text)
    form = _FORMS.get(found[2] or "base64") if found else None
    if found is None or form is None:
        raise NewerFormat(f"{text[:100]!r} is a reference that this holdfast cannot read; upgrade it")
    return Reference(found[1], form, unquote(found[3] or ""))


def get_digest(reference: str) -> str:
    """The digest in a reference, or the digest itself; `BadInput` for anything else."""
    digest = reference.partition("?")[0].removeprefix(f"{SCHEME}//")
    if re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        raise BadInput(f"{reference[:100]!r} names no blob; write 'media+sha256://' and 64 hex digits")
    return digest


def escape(text: str) -> str:
    """The string as it is stored, so that it is not taken for a reference."""
    return f"{_VERBATIM}{text}" if text.startswith(SCHEME) else text


def unescape(text: str) -> str:
    """Reverse `escape`."""
    return text.removeprefix(_VERBATIM)


def find_digests(stored: bytes) -> set[str]:
    """The digests that stored bytes may refer to: of references, and of strings that only look like one."""
    if MARK not in stored:
        return set()
    return {digest.decode() for digest in _ANYWHERE.findall(stored)}


def read_base64(text: str) -> tuple[bytes, Form] | None:
    """The bytes, and the form of base64; None unless encoding them in this form gives the same text."""
    if not text.isascii():
        return None
    raw = text.encode()
    is_url = b"-" in raw or b"_" in raw
    is_bare = len(raw) % 4 != 0
    plain = raw.translate(_FROM_URL) if is_url else raw
    try:
        data = a2b_base64(plain + b"=" * (-len(raw) % 4), strict_mode=True)
    except Base64Error:
        return None
    form: Form
    if is_url:
        form = "base64url-bare" if is_bare else "base64url"
    else:
        form = "base64-bare" if is_bare else "base64"
    return (data, form) if _to_text(data, form) == text else None


def _to_text(data: bytes, form: Form) -> str:
    raw = b2a_base64(data, newline=False)
    if form.startswith("base64url"):
        raw = raw.translate(_TO_URL)
    return (raw.rstrip(b"=") if form.endswith("-bare") else raw).decode()

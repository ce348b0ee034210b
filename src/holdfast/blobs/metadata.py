"""Which descriptions a blob may have, and how they are written down.

The limits are those of the narrowest home, and the same for all: what one home takes can move to any other.
"""

from __future__ import annotations

import re

import msgspec

from ..errors import BadInput, Corrupt
from ..limits import BLOB_CONTEXT_BYTES_MAX, BLOB_FILE_NAME_CHARS_MAX, BLOB_MEDIA_TYPE_CHARS_MAX
from .home import BlobContext

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
# It becomes a header of HTTP: printable ASCII, and the shape that every reader expects.
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+([ ]*;[ -~]*)?", re.ASCII)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BlobContext).decode


def check_digest(digest: str) -> str:
    """The digest, if it is one."""
    if not _DIGEST.fullmatch(digest):
        raise BadInput(f"{digest!r} is no SHA-256: 64 lower-case hexadecimal digits")
    return digest


def check_context(context: BlobContext) -> BlobContext:
    """The context, or `BadInput` if it is not one that every home can give back."""
    media_type, name = context.media_type, context.file_name
    if len(media_type) > BLOB_MEDIA_TYPE_CHARS_MAX or not _MEDIA_TYPE.fullmatch(media_type):
        raise BadInput(
            f"media type {media_type[:100]!r} is not of the form type/subtype, in up to "
            f"{BLOB_MEDIA_TYPE_CHARS_MAX} ASCII characters"
        )
    if name is not None:
        if not 0 < len(name) <= BLOB_FILE_NAME_CHARS_MAX:
            raise BadInput(
                f"a file name has 1 to {BLOB_FILE_NAME_CHARS_MAX} characters, not {len(name)}: {name[:40]!r}"
            )
        _check_text("file name", name)
    for key, value in context.metadata.items():
        _check_text("metadata key", key)
        _check_text(f"metadata {key!r}", value)
    size = len(_encode(context))
    if size > BLOB_CONTEXT_BYTES_MAX:
        raise BadInput(
            f"media type, file name and metadata of a blob take {size} bytes as JSON; "
            f"{BLOB_CONTEXT_BYTES_MAX} are allowed. Keep what is longer in a blob of its own."
        )
    return context


def encode_context(context: BlobContext) -> bytes:
    """The checked context as JSON."""
    return _encode(check_context(context))


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise BadInput(f"{what} must be text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} {text!r} holds half a surrogate pair, which is no text") from None
    if "\0" in text:
        raise BadInput(f"{what} {text!r} holds a NUL character")


def decode_context(info: bytes, digest: str, home: str) -> BlobContext:
    """What `encode_context` wrote; fields of a newer version are passed over."""
    try:
        return _decode(info)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"blob {digest} in {home}", f"its description cannot be read ({error})") from error

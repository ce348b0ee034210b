"""Lines of a journal put together by the description of the format alone, without the codec."""

import base64
import hashlib
import json
from typing import Any


def line(
    seq: int,
    kind: str,
    body: Any,
    *,
    after: str,
    must: bool = False,
    content: Any = None,
    run: str | None = None,
    v: int = 1,
) -> tuple[bytes, str]:
    """A line that follows the one with the sum `after`, and its own sum."""
    at, step = "2026-11-15T19:29:38.123456Z", 1
    salt, digest = bytes(range(12)), b""
    fields: dict[str, Any] = {"v": v, "seq": seq, "at": at, "run": run, "step": step, "kind": kind}
    fields |= {"must": must, "body": body}
    if content is not None:
        digest = hashlib.sha256(salt + compact(content)).digest()
        fields["content"] = content
    envelope = compact([v, seq, at, run, step, kind, must])
    body_salt = hashlib.sha256(salt + b"body").digest()[:12]
    fact = hashlib.sha256(body_salt + compact(body)).digest()
    fields["salt"] = text(salt)
    fields["sum"] = text(hashlib.sha256(after.encode() + digest + envelope + fact).digest())
    if run is None:
        del fields["run"]
    if not must:
        del fields["must"]
    return compact(fields), fields["sum"]


def compact(value: Any) -> bytes:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def text(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

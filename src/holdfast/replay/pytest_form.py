"""A recording as a test: `holdfast export --form pytest`."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final

import msgspec

from .. import redact
from ..errors import BadInput
from .recording import Recording

_TEST: Final = '''"""Session {session!r} as a test, written by `holdfast export --form pytest`.

What the model and the tools gave is on record, and nothing is executed. The test fails, and says where, if
today's agent would do anything differently.
"""

from {module} import {attribute}

from holdfast.replay import check_recording

RECORDING = r\'\'\'{recording}\'\'\'


def test_{name}() -> None:
    check_recording(RECORDING, {attribute})
'''

_OWN: Final = ("instructions", "tools", "session", "agent")
"""Fields of a recording that hold digests and names."""


def write_test(recording: Recording, *, module: str, attribute: str, without_secrets: bool = False) -> str:
    """The source of a test that replays the recording with `module.attribute`, an agent or a function that
    makes it.

    What looks like a secret is an error that says where it is, or left out in words (`without_secrets`).
    """
    # As it is written: lists for all sequences, and text for all strings.
    plain = _without_ids(msgspec.json.decode(msgspec.json.encode(recording)))
    said = {name: value for name, value in plain.items() if name not in _OWN}
    found = list(redact.iter_secrets(said))
    if found and not without_secrets:
        listed = "\n".join(str(one) for one in found[:10])
        more = f"\nand {len(found) - 10} more" if len(found) > 10 else ""
        raise BadInput(
            f"session {recording.session!r} holds what looks like a secret. Leave it out with "
            f"--without-secrets (without_secrets=True), or test another session\n{listed}{more}"
        )
    if found:
        plain |= redact.without_secrets(said)
    data = msgspec.json.format(msgspec.json.encode(plain), indent=1).decode()
    # In a raw string: no quote can end it, and no invisible character hides in it.
    escaped = re.sub(r"[^\x20-\x26\x28-\x7e\n]", _escape, data)
    name = re.sub(r"\W+", "_", recording.session).strip("_").lower() or "session"
    return _TEST.format(
        session=recording.session, module=module, attribute=attribute, recording=escaped, name=name
    )


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _without_ids(plain: dict[str, Any]) -> dict[str, Any]:
    """The recording without what only providers need: their ids of calls, which look like tokens, and
    reasoning with its signatures."""
    names: dict[str, str] = {}
    for number, one in enumerate(plain.get("history", ())):
        _rename(one, f"h{number + 1}", names)
    for number, reply in enumerate(plain.get("replies", ())):
        _rename(reply["said"], f"r{number + 1}", names)
        said = reply["said"]["data"]
        is_own = isinstance(said, dict) and "blocks" in said
        for place, call in enumerate(reply.get("calls", ())):
            names[call["id"]] = name = f"r{number + 1}.{place + 1}"
            if not is_own:
                reply["said"]["data"] = _replace_text(reply["said"]["data"], call["id"], name)
            call["id"] = name
            if isinstance(call.get("answer_part"), dict):
                call["answer_part"] = _without_foreign_ids(call["answer_part"])
                call["answer_part"].pop("tool_call_id", None)
    return plain


def _replace_text(data: Any, old: str, new: str) -> Any:
    """The same data with another text in all places where it is this one."""
    if isinstance(data, list):
        return [_replace_text(one, old, new) for one in data]
    if isinstance(data, dict):
        return {key: _replace_text(one, old, new) for key, one in data.items()}
    return new if data == old else data


def _rename(said: dict[str, Any], prefix: str, names: dict[str, str]) -> None:
    if not isinstance(said["data"], dict) or "blocks" not in said["data"]:
        said["data"] = _without_foreign_ids(said["data"])
        return
    blocks = [one for one in said["data"]["blocks"] if one["kind"] != "reasoning"]
    said["data"]["blocks"] = blocks
    for place, block in enumerate(one for one in blocks if one["kind"] == "tool_call"):
        names[block["id"]] = block["id"] = f"{prefix}.{place + 1}"
    for block in blocks:
        block.pop("metadata", None)
        if block["kind"] == "tool_result":
            block["call_id"] = names.get(block["call_id"], block["call_id"])


_FOREIGN_IDS: Final = frozenset(
    {
        *("provider_details", "provider_response_id", "provider_url", "signature", "encrypted_content"),
        *("run_id", "conversation_id", "history_digest"),
    }
)
"""Fields of other frameworks' messages that only providers need, and names of runs."""


_PROVIDER_IDS: Final = ("id", "response_id", "request_id")


def _without_foreign_ids(data: Any) -> Any:
    """The same for a message of another framework."""
    if isinstance(data, list):
        kinds = [one.get("part_kind") or one.get("type") if isinstance(one, dict) else "" for one in data]
        kept = (one for one, kind in zip(data, kinds, strict=True) if kind not in ("thinking", "reasoning"))
        return [_without_foreign_ids(one) for one in kept]
    if isinstance(data, dict):
        return {
            key: f"id-{sha256(one.encode()).hexdigest()[:8]}"
            if key in _PROVIDER_IDS and isinstance(one, str)
            else _without_foreign_ids(one)
            for key, one in data.items()
            if key not in _FOREIGN_IDS
        }
    return data

"""What the proxy itself says to a client: results that were recorded, and calls that it does not make."""

from __future__ import annotations

import shlex
from typing import Any

from msgspec import Struct

from ..content.encode import Given
from ..core.effects import Effect
from ..ids import SessionId
from ..messages import Json
from ..redact import without_password
from ..tools.outcome import as_text
from .tool_catalogue import ProxyTool

STATUS, SESSION, CALL, STORE = "holdfast/status", "holdfast/session", "holdfast/call", "holdfast/store"
"""In `_meta` of a result that the proxy made or gave again."""


class Place(Struct, frozen=True):
    """Where a call is on record."""

    store: str
    session: SessionId
    call: str

    @property
    def _options(self) -> str:
        return f" --store {shlex.quote(without_password(self.store))}"

    @property
    def _call(self) -> str:
        return f"{shlex.quote(self.session)} {shlex.quote(self.call)}"

    def resolve_commands(self) -> str:
        """The commands that settle it, ready to be copied."""
        return (
            f"  holdfast resolve {self._call} landed --result '…'{self._options}\n"
            f"  holdfast resolve {self._call} not-landed{self._options}"
        )

    def approve_commands(self) -> str:
        """The commands that allow it, or not."""
        return (
            f"  holdfast approve {self._call}{self._options}\n"
            f"  holdfast refuse {self._call} --reason '…'{self._options}"
        )

    def as_meta(self, status: str) -> dict[str, Json]:
        """The same for programs."""
        return {
            STATUS: status,
            SESSION: self.session,
            CALL: self.call,
            STORE: without_password(self.store),
        }


def error_result(text: str, meta: dict[str, Json] | None = None) -> dict[str, Json]:
    """A result that a model takes as an error."""
    result: dict[str, Json] = {"content": [{"type": "text", "text": text}], "isError": True}
    return {**result, "_meta": meta} if meta else result


def describe_doubt(tool: ProxyTool, row: Effect, place: Place, *, is_new: bool) -> str:
    """What is known of a call in doubt. `is_new`: it is the very call that asks; else it was made before."""
    reason = row.reason or "its process ended during the call"
    when = f"{row.at:%Y-%m-%d %H:%M:%S} UTC"
    if is_new:
        text = f"{tool.name}: IN DOUBT. The call was sent to the server, and what became of it is not known"
    else:
        text = f"{tool.name}: NOT RUN. The same call was made at {when}, and what became of it is not known"
    if row.status == "gave_up":
        text += f" for good: a person gave it up ({reason})"
    else:
        text += f": {reason}"
    return (
        f"{text}. It may have happened, so it is not made again. Do not try it in another way either. A "
        f"person who finds out what happened says so:\n{place.resolve_commands()}\n"
        "After `landed`, the same call is given that result; after `not-landed`, it is made."
    )


def describe_waiting(tool: ProxyTool, place: Place, *, is_elsewhere: bool = False) -> dict[str, Json]:
    """The result of a call that waits for a person. `is_elsewhere`: on another connection, which is open."""
    text = f"{tool.name}: NOT RUN YET. It needs a person's approval:\n{place.approve_commands()}\n"
    if is_elsewhere:
        text += "Once it is approved, make the same call where it was made first, or close that connection."
    else:
        text += "Once it is approved, make the same call again."
    return error_result(text, place.as_meta("waiting"))


def describe_gone(tool: ProxyTool, operation: str, why: str, store: str) -> str:
    """What is known of a call in doubt whose session was deleted."""
    options = f" --store {shlex.quote(without_password(store))}"
    return (
        f"{tool.name}: NOT RUN. {why}. A person who finds out what happened says so:\n"
        f"  holdfast resolve-operation {operation} landed --result '…'{options}\n"
        f"  holdfast resolve-operation {operation} not-landed{options}"
    )


def as_result(given: Given, tool: ProxyTool, *, place: Place, status: str) -> dict[str, Json]:
    """A recorded outcome as a result: the server's own, or what a person or a verify hook said."""
    meta = place.as_meta(status)
    value: Any = given.value
    if _is_of_server(value) and not given.unkept:
        own = value.get("_meta")
        return {**value, "_meta": {**(own if isinstance(own, dict) else {}), **meta}}
    text = given.text if value is None or given.unkept else as_text(value)
    if value is None and text == as_text(None):
        text = ""  # A person or a verify hook has said that it happened, and no more.
    result: dict[str, Json] = {
        "content": [{"type": "text", "text": text or f"{tool.name}: it happened, and gave no result."}],
        "_meta": meta,
    }
    if isinstance(value, dict):
        result["structuredContent"] = value
    elif tool.has_output_schema:
        # Clients refuse a result without the structure that the tool has announced.
        known = text or "nothing more"
        lost = f"{tool.name}: IT HAPPENED, and its result is lost. What is known: {known}"
        result["content"] = [{"type": "text", "text": lost}]
        result["isError"] = True
    return result


def _is_of_server(value: Any) -> bool:
    """Whether a recorded value is the result of a server, in the form of any version of the protocol, and not
    what a person or a verify hook said."""
    if not isinstance(value, dict):
        return False
    is_result = isinstance(value.get("content"), list) or isinstance(value.get("structuredContent"), dict)
    return is_result or "resultType" in value or "toolResult" in value or isinstance(value.get("task"), dict)


def fit_era(result: dict[str, Json], *, is_modern: bool) -> dict[str, Json]:
    """The result in the form of the client's era."""
    if is_modern:
        return {"resultType": "complete", **result}
    return {key: value for key, value in result.items() if key != "resultType"}

"""Find out whether an effect happened: by another tool of the same server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ..messages import Json
from ..tools.outcome import Landed, NotLanded, Unsure, Verification
from .configuration import LandedIf, MissingArgument, VerifyByTool, fill

AskTool: TypeAlias = Callable[[str, dict[str, Json]], Awaitable[Json]]
"""Calls a tool of the server, past the ledger; its result, or an exception."""


def make_verify(verify: VerifyByTool, ask: AskTool) -> Callable[..., Any]:
    """The verify hook of a tool whose effect another tool shows."""

    async def look(**arguments: Any) -> Verification:
        try:
            asked: Any = fill(dict(verify.arguments), arguments)
            landed_if = fill_condition(verify.landed_if, arguments)
        except MissingArgument as error:
            return Unsure(f"{error}, which the question to {verify.tool} needs")
        if landed_if.text_contains == "":
            return Unsure("the text to look for is empty, and every text contains it")
        result = await ask(verify.tool, asked)
        if not isinstance(result, dict) or result.get("isError"):
            return Unsure(f"{verify.tool} answered with an error: {get_text(result)[:500]}")
        if not isinstance(result.get("content"), list) and "structuredContent" not in result:
            return Unsure(f"{verify.tool} answered with something else than a result")
        return Landed() if holds(landed_if, result) else NotLanded()

    return look


def fill_condition(landed_if: LandedIf, arguments: dict[str, Json]) -> LandedIf:
    """The condition for one call."""
    text, pointer = landed_if.text_contains, landed_if.pointer
    filled: Any = fill([None if text is None else f"{text}", landed_if.equals], arguments)
    return LandedIf(
        text_contains=None if text is None else _as_plain_text(filled[0]),
        pointer=None
        if pointer is None
        else "/".join(_fill_part(one, arguments) for one in pointer.split("/")),
        equals=filled[1],
        is_compared=landed_if.is_compared,
        exists=landed_if.exists,
    )


def _as_plain_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fill_part(part: str, arguments: dict[str, Json]) -> str:
    filled = fill(part, arguments)
    text = _as_plain_text(filled)
    return text if text == part else text.replace("~", "~0").replace("/", "~1")


def holds(landed_if: LandedIf, result: dict[str, Json]) -> bool:
    """Whether the result of a tool says that the effect happened."""
    text = get_text(result)
    if landed_if.text_contains is not None:
        return landed_if.text_contains in text
    data = result.get("structuredContent")
    if data is None:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
    is_there, value = _find(data, landed_if.pointer or "")
    if landed_if.is_compared:
        return is_there and _is_same(value, landed_if.equals)
    return is_there is landed_if.exists


def _is_same(a: Json, b: Json) -> bool:
    """Whether two values are equal; `true` is not 1."""
    return isinstance(a, bool) is isinstance(b, bool) and a == b


def get_text(result: Json) -> str:
    """The text in the result of a tool."""
    content = result.get("content") if isinstance(result, dict) else None
    texts = [
        one["text"]
        for one in (content if isinstance(content, list) else ())
        if isinstance(one, dict) and isinstance(one.get("text"), str)
    ]
    return "\n".join(texts)


def _find(data: Json, pointer: str) -> tuple[bool, Json]:
    """What is at a JSON pointer, and whether anything is."""
    if not pointer:
        return data is not None, data
    for part in pointer[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, dict) and key in data:
            data = data[key]
        elif isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return False, None
    return True, data

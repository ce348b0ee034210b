"""Items as the SDK has them."""

from __future__ import annotations

from typing import Any

Item = Any


def user(text: str) -> Item:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Item:
    """A message of the model."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def call(call_id: str, name: str = "look", **fields: Any) -> Item:
    """A call of a tool."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **fields}


def output(call_id: str, text: Any = "done") -> Item:
    """What a call gave."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}

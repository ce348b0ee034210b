"""The same conversation in the formats of other libraries, as their messages are stored."""

from __future__ import annotations

from typing import Any, Final

CONVERSATIONS: Final[dict[str, list[dict[str, Any]]]] = {
    "openai": [
        {"role": "user", "content": [{"type": "text", "text": "Is it "}, {"type": "text", "text": "warm?"}]},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}},
                {"id": "c2", "type": "custom", "custom": {"name": "note", "input": "it"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noted"}]},
        {"role": "assistant", "content": None, "refusal": "That I will not say."},
    ],
    "openai-responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "Is it warm?"}]},
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Look first."}]},
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
        },
        {"type": "function_call", "id": "f1", "call_id": "c1", "name": "look", "arguments": '{"n":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": "it"},
        {"type": "function_call_output", "call_id": "c1", "output": "18 degrees"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "noted"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "That I will not say."}],
        },
    ],
    "anthropic": [
        {"role": "user", "content": "Is it warm?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look first.", "signature": "s"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"n": 1}},
                {"type": "tool_use", "id": "c2", "name": "note", "input": "it"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "18 degrees"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "noted"}]},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "That I will not say."}]},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["Is it", "warm?"]}]},
        {
            "kind": "response",
            "parts": [
                {"part_kind": "thinking", "content": "Look first."},
                {"part_kind": "text", "content": "Let me see."},
                {"part_kind": "tool-call", "tool_name": "look", "tool_call_id": "c1", "args": '{"n":1}'},
                {"part_kind": "tool-call", "tool_name": "note", "tool_call_id": "c2", "args": "it"},
            ],
        },
        {
            "kind": "request",
            "parts": [
                {
                    "part_kind": "tool-return",
                    "tool_name": "look",
                    "tool_call_id": "c1",
                    "content": "18 degrees",
                },
                {"part_kind": "retry-prompt", "tool_name": "note", "tool_call_id": "c2", "content": "noted"},
            ],
        },
        {"kind": "response", "parts": [{"part_kind": "text", "content": "That I will not say."}]},
    ],
}
SAID: Final = ["Is it warm?", "Let me see.", "That I will not say."]
CALLS: Final = ['look({"n":1})', "note(it)"]
RESULTS: Final = ["18 degrees", "noted"]

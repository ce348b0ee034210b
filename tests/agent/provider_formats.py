"""The wire formats of providers, as far as tests speak them: what was asked, and how an answer looks."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Event = tuple[str | None, dict[str, Any]]
"""One server-sent event: its name, where the format has names, and its data."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call in an answer. Arguments given as a string are sent as they are, valid or not."""

    name: str
    args: dict[str, Any] | str = field(default_factory=dict)
    id: str = "call_1"

    @property
    def text(self) -> str:
        return self.args if isinstance(self.args, str) else json.dumps(self.args)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reply. The tokens of the cache are among the input tokens, whatever the format makes of that."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[Call] = ()
    input_tokens: int = 100
    output_tokens: int = 20
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cut_short: bool = False


@dataclass(frozen=True)
class Offered:
    """A tool that a request offers."""

    name: str
    schema: dict[str, Any]


class Dialect(Protocol):
    """How one API speaks."""

    def plain(self, answer: Answer, model: str) -> dict[str, Any]:
        """The body of a whole reply."""

    def events(self, answer: Answer, model: str) -> Iterator[Event]:
        """The same, streamed."""

    def error(self, kind: str, message: str) -> dict[str, Any]:
        """The body of an error."""

    def tools(self, body: dict[str, Any]) -> list[Offered]:
        """The tools that a request offers."""

    def ends_with_results(self, body: dict[str, Any]) -> bool:
        """Whether the last that a request says is what came of tool calls."""


def halves(text: str) -> Iterator[str]:
    """A text in two pieces, so that there is a middle of a stream."""
    middle = (len(text) + 1) // 2
    yield from (piece for piece in (text[:middle], text[middle:]) if piece)


class Anthropic:
    """The Messages API."""

    def plain(self, answer: Answer, model: str) -> dict[str, Any]:
        return {
            **self._head(answer, model),
            "content": list(self._content(answer)),
            "stop_reason": self._stop(answer),
            "usage": {**self._input(answer), "output_tokens": answer.output_tokens},
        }

    def events(self, answer: Answer, model: str) -> Iterator[Event]:
        opening = {**self._input(answer), "output_tokens": 1}
        head = {**self._head(answer, model), "content": [], "stop_reason": None, "usage": opening}
        yield self._event("message_start", message=head)
        for index, block in enumerate(self._content(answer)):
            yield from self._block_events(index, block, answer)
        yield self._event(
            "message_delta",
            delta={"stop_reason": self._stop(answer), "stop_sequence": None},
            usage={"output_tokens": answer.output_tokens},
        )
        yield self._event("message_stop")

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": message}}

    def tools(self, body: dict[str, Any]) -> list[Offered]:
        return [Offered(tool["name"], tool["input_schema"]) for tool in body.get("tools") or ()]

    def ends_with_results(self, body: dict[str, Any]) -> bool:
        content = body["messages"][-1]["content"]
        return not isinstance(content, str) and any(part["type"] == "tool_result" for part in content)

    def _head(self, answer: Answer, model: str) -> dict[str, Any]:
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}

    def _stop(self, answer: Answer) -> str:
        return "max_tokens" if answer.cut_short else "tool_use" if answer.calls else "end_turn"

    def _input(self, answer: Answer) -> dict[str, Any]:
        cached = answer.cache_read_tokens + answer.cache_write_tokens
        return {
            "input_tokens": answer.input_tokens - cached,
            "cache_read_input_tokens": answer.cache_read_tokens,
            "cache_creation_input_tokens": answer.cache_write_tokens,
        }

    def _content(self, answer: Answer) -> Iterator[dict[str, Any]]:
        if answer.thinking:
            yield {"type": "thinking", "thinking": answer.thinking, "signature": "signed"}
        if answer.text:
            yield {"type": "text", "text": answer.text}
        for call in answer.calls:
            yield {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}

    def _block_events(self, index: int, block: dict[str, Any], answer: Answer) -> Iterator[Event]:
        kind = block["type"]
        empty: dict[str, Any] = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        if kind == "tool_use":
            empty = {"input": {}}
        yield self._event("content_block_start", index=index, content_block={**block, **empty})
        for delta in self._deltas(block):
            yield self._event("content_block_delta", index=index, delta=delta)
        yield self._event("content_block_stop", index=index)

    def _deltas(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if block["type"] == "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in halves(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        elif block["type"] == "text":
            yield from ({"type": "text_delta", "text": piece} for piece in halves(block["text"]))
        else:
            args = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in halves(args))

    def _event(self, kind: str, **data: Any) -> Event:
        return kind, {"type": kind, **data}


class OpenAIResponses:
    """The Responses API."""

    def plain(self, answer: Answer, model: str) -> dict[str, Any]:
        reason = {"reason": "max_output_tokens"} if answer.cut_short else None
        return {
            **self._head(model, "incomplete" if answer.cut_short else "completed"),
            "incomplete_details": reason,
            "output": list(self._output(answer)),
            "usage": {
                "input_tokens": answer.input_tokens,
                "input_tokens_details": {
                    "cached_tokens": answer.cache_read_tokens,
                    "cache_write_tokens": answer.cache_write_tokens,
                },
                "output_tokens": answer.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.input_tokens + answer.output_tokens,
            },
        }

    def events(self, answer: Answer, model: str) -> Iterator[Event]:
        for number, (kind, data) in enumerate(self._events(answer, model)):
            yield kind, {"type": kind, "sequence_number": number, **data}

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "code": kind, "message": message, "param": None}}

    def tools(self, body: dict[str, Any]) -> list[Offered]:
        return [Offered(tool["name"], tool["parameters"]) for tool in body.get("tools") or ()]

    def ends_with_results(self, body: dict[str, Any]) -> bool:
        return bool(body["input"][-1].get("type") == "function_call_output")

    def _head(self, model: str, status: str) -> dict[str, Any]:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": model,
            "status": status,
            "error": None,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def _output(self, answer: Answer) -> Iterator[dict[str, Any]]:
        if answer.thinking:
            summary = [{"type": "summary_text", "text": answer.thinking}]
            yield {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"}
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
            yield {**message, "content": content}
        for number, call in enumerate(answer.calls, start=1):
            item = {"type": "function_call", "id": f"fc_{number}", "status": "completed"}
            yield {**item, "call_id": call.id, "name": call.name, "arguments": call.text}

    def _events(self, answer: Answer, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.created", {"response": self._head(model, "in_progress")}
        for index, item in enumerate(self._output(answer)):
            place = {"output_index": index, "item_id": item["id"]}
            hollow: dict[str, dict[str, Any]] = {
                "reasoning": {"summary": []},
                "message": {"content": []},
                "function_call": {"arguments": ""},
            }
            yield "response.output_item.added", {**place, "item": {**item, **hollow[item["type"]]}}
            yield from ((kind, {**place, **data}) for kind, data in self._deltas(item))
            yield "response.output_item.done", {**place, "item": item}
        kind = "response.incomplete" if answer.cut_short else "response.completed"
        yield kind, {"response": self.plain(answer, model)}

    def _deltas(self, item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        if item["type"] == "reasoning":
            part = {"summary_index": 0}
            text = item["summary"][0]["text"]
            empty = {"type": "summary_text", "text": ""}
            yield "response.reasoning_summary_part.added", {**part, "part": empty}
            for piece in halves(text):
                yield "response.reasoning_summary_text.delta", {**part, "delta": piece}
            yield "response.reasoning_summary_text.done", {**part, "text": text}
        elif item["type"] == "message":
            text = item["content"][0]["text"]
            for piece in halves(text):
                yield "response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {"content_index": 0, "text": text, "logprobs": []}
        else:
            for piece in halves(item["arguments"]):
                yield "response.function_call_arguments.delta", {"delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", done


class OpenAIChat:
    """Chat completions, as OpenAI-compatible servers speak them."""

    def plain(self, answer: Answer, model: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.thinking:
            message["reasoning_content"] = answer.thinking
        if answer.calls:
            message["tool_calls"] = [self._call(call, call.text) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._stop(answer), "logprobs": None}
        return {**self._head(model, "chat.completion"), "choices": [choice], "usage": self._usage(answer)}

    def events(self, answer: Answer, model: str) -> Iterator[Event]:
        head = self._head(model, "chat.completion.chunk")
        for delta in self._deltas(answer):
            yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": self._stop(answer)}]}
        yield None, {**head, "choices": [], "usage": self._usage(answer)}

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "code": kind, "message": message, "param": None}}

    def tools(self, body: dict[str, Any]) -> list[Offered]:
        functions = [tool["function"] for tool in body.get("tools") or ()]
        return [Offered(function["name"], function["parameters"]) for function in functions]

    def ends_with_results(self, body: dict[str, Any]) -> bool:
        return bool(body["messages"][-1]["role"] == "tool")

    def _head(self, model: str, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl_1", "object": kind, "created": 1_700_000_000, "model": model}

    def _stop(self, answer: Answer) -> str:
        return "length" if answer.cut_short else "tool_calls" if answer.calls else "stop"

    def _usage(self, answer: Answer) -> dict[str, Any]:
        return {
            "prompt_tokens": answer.input_tokens,
            "prompt_tokens_details": {"cached_tokens": answer.cache_read_tokens},
            "completion_tokens": answer.output_tokens,
            "total_tokens": answer.input_tokens + answer.output_tokens,
        }

    def _call(self, call: Call, arguments: str) -> dict[str, Any]:
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}

    def _deltas(self, answer: Answer) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": ""}
        yield from ({"reasoning_content": piece} for piece in halves(answer.thinking))
        yield from ({"content": piece} for piece in halves(answer.text))
        for index, call in enumerate(answer.calls):
            yield {"tool_calls": [{"index": index, **self._call(call, "")}]}
            for piece in halves(call.text):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


DIALECTS: dict[str, Dialect] = {
    "/v1/messages": Anthropic(),
    "/v1/responses": OpenAIResponses(),
    "/v1/chat/completions": OpenAIChat(),
}
"""Each by the path it is spoken at."""

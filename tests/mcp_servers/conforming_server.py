"""A server on stdio with the tools, resources and prompts that the conformance suites ask for, in both eras.

    python conforming_server.py

Without a library, and with a thread for each request: some ask the client for something before they answer.
"""

from __future__ import annotations

import base64
import hmac
import itertools
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Any
MODERN, LEGACY = "2026-07-28", "2025-11-25"
RESERVED = "io.modelcontextprotocol/"
METHOD_NOT_FOUND, INVALID_PARAMS, UNSUPPORTED_VERSION, MISSING_CAPABILITY = -32601, -32602, -32022, -32021
KEY = b"of this process"
# A picture of one point, and a sound of no length.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\0\0\0\0"
).decode()
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
INFO = {"name": "conforming", "version": "1"}


class Refused(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


def text(said: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": said}


def picture() -> Json:
    """A block with a picture."""
    return {"type": "image", "data": PICTURE, "mimeType": "image/png"}


def ask_for(name: str, message: str, kind: str = "string") -> Json:
    """A request for one value."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


SAMPLING = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": text("What is the capital of France?")}],
        "maxTokens": 100,
    },
}
ROOTS = {"method": "roots/list", "params": {}}
NAME = ask_for("name", "What is your name?")
CONFIRM = ask_for("ok", "Please confirm", "boolean")
_ENUMS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ENUMS = {
    "untitledSingle": {"type": "string", "enum": _ENUMS},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _ENUMS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}


class Request:
    """One request: its parameters, and a way to speak while it is under way."""

    def __init__(self, server: Server, params: Json) -> None:
        self._server, self.params = server, params
        self.meta: Json = params.get("_meta") or {}
        self.is_modern = f"{RESERVED}protocolVersion" in self.meta
        self.arguments: Json = params.get("arguments") or {}
        self.responses: Json = params.get("inputResponses") or {}

    def tell(self, method: str, **params: Json) -> None:
        """Send a notification."""
        self._server.send({"method": method, "params": params})

    def ask(self, wanted: Json) -> Json:
        """Ask the client, and wait for the answer."""
        return self._server.ask(wanted)

    def announce(self, what: str) -> Json:
        """Tell whoever wants to know that a list has changed."""
        self._server.announce(what, is_modern=self.is_modern)
        return text(f"the {what} have changed")

    def needs(self, state: str | None = None, **wanted: Json) -> Json:
        """The answer of the newer era that asks for something first."""
        answer = {"resultType": "input_required", "inputRequests": wanted}
        return answer if state is None else {**answer, "requestState": seal(state)}

    def state(self) -> str:
        """What was sealed before; refused if it is not that."""
        said, _, mark = str(self.params.get("requestState", "")).rpartition(".")
        if not hmac.compare_digest(seal(said), f"{said}.{mark}"):
            raise Refused(INVALID_PARAMS, "requestState is not what this server has sent")
        return said


def seal(state: str) -> str:
    """A text that cannot be changed unnoticed."""
    return f"{state}.{hmac.digest(KEY, state.encode(), 'sha256').hex()}"


# -- tools -----------------------------------------------------------------------------------------------


def log(request: Request) -> Json:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        if not request.is_modern or f"{RESERVED}logLevel" in request.meta:
            request.tell("notifications/message", level="info", logger="conforming", data=said)
        time.sleep(0.05)
    return text("logged")


def make_progress(request: Request) -> Json:
    token = request.meta.get("progressToken")
    for done in (0, 50, 100):
        if token is not None:
            request.tell("notifications/progress", progressToken=token, progress=done, total=100)
        time.sleep(0.05)
    return text("done")


def sample(request: Request) -> Json:
    messages = [{"role": "user", "content": text(request.arguments.get("prompt", ""))}]
    answer = request.ask(
        {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}
    )
    return text(f"LLM response: {answer['content']['text']}")


def elicit(request: Request) -> Json:
    names = ("username", "email")
    schema = {
        "type": "object",
        "properties": {one: {"type": "string"} for one in names},
        "required": list(names),
    }
    params = {"message": request.arguments.get("message", ""), "requestedSchema": schema}
    return text(
        f"User response: {json.dumps(request.ask({'method': 'elicitation/create', 'params': params}))}"
    )


def elicit_with(properties: Mapping[str, Json]) -> Callable[[Request], Json]:
    def ask(request: Request) -> Json:
        schema = {"type": "object", "properties": dict(properties), "required": []}
        answer = request.ask(
            {"method": "elicitation/create", "params": {"message": "Say", "requestedSchema": schema}}
        )
        return text(f"Elicitation completed: {json.dumps(answer)}")

    return ask


def need_capability(request: Request) -> Json:
    able = request.meta.get(f"{RESERVED}clientCapabilities") or {}
    if "sampling" not in able:
        raise Refused(MISSING_CAPABILITY, "sampling is needed", {"requiredCapabilities": {"sampling": {}}})
    return text("able")


def need_name(request: Request) -> Json:
    answer = request.responses.get("user_name")
    content = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        return request.needs(user_name=NAME)
    return text(f"Hello, {content['name']}!")


def need_sampling(request: Request) -> Json:
    answer = request.responses.get("capital_question")
    return request.needs(capital_question=SAMPLING) if answer is None else text(answer["content"]["text"])


def need_roots(request: Request) -> Json:
    answer = request.responses.get("client_roots")
    return request.needs(client_roots=ROOTS) if answer is None else text(json.dumps(answer["roots"]))


def need_confirmation(request: Request) -> Json:
    if "confirm" not in request.responses:
        return request.needs("round-1", confirm=CONFIRM)
    request.state()
    return text("state-ok")


def need_several(request: Request) -> Json:
    wanted = {"user_name": NAME, "greeting": SAMPLING, "client_roots": ROOTS}
    if not wanted.keys() <= request.responses.keys():
        return request.needs("several", **wanted)
    request.state()
    return text(f"all there: {json.dumps(request.responses)}")


def need_rounds(request: Request) -> Json:
    if "step2" in request.responses and request.state() == "round-2":
        return text("both rounds are done")
    if "step1" in request.responses and request.state() == "round-1":
        return request.needs("round-2", step2=ask_for("color", "Step 2: What is your favorite color?"))
    return request.needs("round-1", step1=ask_for("name", "Step 1: What is your name?"))


def need_what_the_client_can(request: Request) -> Json:
    able = request.meta.get(f"{RESERVED}clientCapabilities") or {}
    known = {
        "elicitation": ("name", NAME),
        "sampling": ("capital_question", SAMPLING),
        "roots": ("roots", ROOTS),
    }
    wanted = {key: one for name, (key, one) in known.items() if name in able}
    return request.needs(**wanted) if wanted and not request.responses else text("enough")


def fail(request: Request) -> Json:
    return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}


def embedded(uri: str, kind: str, said: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": said}}


MIXED = [
    text("Multiple content types test:"),
    picture(),
    embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
]
EMBEDDED = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
NEEDED = "test_input_required_result_"
TOOLS: Mapping[str, Callable[[Request], Json]] = {
    "test_simple_text": lambda request: text("This is a simple text response for testing."),
    "test_image_content": lambda request: picture(),
    "test_audio_content": lambda request: {"type": "audio", "data": SOUND, "mimeType": "audio/wav"},
    "test_embedded_resource": lambda request: EMBEDDED,
    "test_multiple_content_types": lambda request: {"content": MIXED},
    "test_tool_with_logging": log,
    "test_logging_tool": log,
    "test_tool_with_progress": make_progress,
    "test_error_handling": fail,
    "test_sampling": sample,
    "test_elicitation": elicit,
    "test_elicitation_sep1034_defaults": elicit_with(DEFAULTS),
    "test_elicitation_sep1330_enums": elicit_with(ENUMS),
    "test_missing_capability": need_capability,
    "test_trigger_tool_change": lambda request: request.announce("tools"),
    "test_trigger_prompt_change": lambda request: request.announce("prompts"),
    "test_streaming_elicitation": need_name,
    f"{NEEDED}elicitation": need_name,
    f"{NEEDED}sampling": need_sampling,
    f"{NEEDED}list_roots": need_roots,
    f"{NEEDED}request_state": need_confirmation,
    f"{NEEDED}tampered_state": need_confirmation,
    f"{NEEDED}multiple_inputs": need_several,
    f"{NEEDED}multi_round": need_rounds,
    f"{NEEDED}capabilities": need_what_the_client_can,
}
PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    f"{NEEDED}prompt": [],
}


# -- the server ------------------------------------------------------------------------------------------


class Server:
    """Reads requests, and answers each from a thread of its own."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._waiting: dict[str, queue.Queue[Json]] = {}
        self._numbers = itertools.count(1)
        self._listening: dict[Json, Json] = {}
        """What each subscription of the newer era wants to hear of, by the id of its request."""
        self._methods: Mapping[str, Callable[[Request], Json]] = {
            "initialize": self._initialize,
            "server/discover": lambda request: {"supportedVersions": [MODERN], "capabilities": CAPABILITIES},
            "ping": lambda request: {},
            "logging/setLevel": lambda request: {},
            "resources/subscribe": lambda request: {},
            "resources/unsubscribe": lambda request: {},
            "tools/list": lambda request: {"tools": list(map(describe_tool, TOOLS))},
            "tools/call": self._call,
            "resources/list": lambda request: {"resources": RESOURCES},
            "resources/templates/list": lambda request: {"resourceTemplates": TEMPLATES},
            "resources/read": read,
            "prompts/list": lambda request: {"prompts": list(map(describe_prompt, PROMPTS))},
            "prompts/get": get_prompt,
            "completion/complete": lambda request: {
                "completion": {"values": ["paris", "park"], "hasMore": False}
            },
        }

    def run(self) -> None:
        """Until there is no more to read."""
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self._waiting.pop(message["id"]).put(message)
            elif message["method"] == "subscriptions/listen":
                self._listen(message["id"], message["params"]["notifications"])
            elif message["method"] == "notifications/cancelled":
                self._listening.pop(message["params"]["requestId"], None)
            elif "id" in message:
                threading.Thread(target=self._answer, args=[message], daemon=True).start()

    def send(self, message: Json) -> None:
        """Send a message."""
        with self._writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def _listen(self, id: Json, wanted: Json) -> None:
        """Open a subscription, which has no answer as long as it lasts."""
        self._listening[id] = wanted
        self._tell_one(id, "notifications/subscriptions/acknowledged", notifications=wanted)

    def announce(self, what: str, *, is_modern: bool) -> None:
        """Tell that a list has changed: each subscription that wants to know, or the client."""
        method = f"notifications/{what}/list_changed"
        if not is_modern:
            self.send({"method": method})
        for id, wanted in list(self._listening.items()):
            if wanted.get(f"{what}ListChanged"):
                self._tell_one(id, method)

    def _tell_one(self, id: Json, method: str, **params: Json) -> None:
        self.send({"method": method, "params": {**params, "_meta": {f"{RESERVED}subscriptionId": id}}})

    def ask(self, wanted: Json) -> Json:
        """Ask the client, and wait for its answer."""
        id = f"s{next(self._numbers)}"
        answers = self._waiting[id] = queue.Queue()
        self.send({"id": id, **wanted})
        answer = answers.get()
        if "error" in answer:
            raise Refused(-32603, str(answer["error"].get("message")))
        return answer["result"]

    def _answer(self, message: Json) -> None:
        request = Request(self, message.get("params") or {})
        try:
            result = self._find_method(request, message["method"])(request)
        except Refused as refused:
            self.send({"id": message["id"], "error": refused.error})
            return
        if request.is_modern:
            kept = {"ttlMs": 0, "cacheScope": "public"} if message["method"] in CACHED else {}
            about = (
                {"_meta": {f"{RESERVED}serverInfo": INFO}} if message["method"] == "server/discover" else {}
            )
            result = {"resultType": "complete", **kept, **about, **result}
        self.send({"id": message["id"], "result": result})

    def _find_method(self, request: Request, method: str) -> Callable[[Request], Json]:
        version = request.meta.get(f"{RESERVED}protocolVersion")
        if version is not None:
            if version != MODERN:
                data = {"supported": [MODERN], "requested": version}
                raise Refused(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
            if f"{RESERVED}clientCapabilities" not in request.meta:
                raise Refused(INVALID_PARAMS, "clientCapabilities are missing in _meta")
        if method not in self._methods or (version is not None and method in ONLY_LEGACY):
            raise Refused(METHOD_NOT_FOUND, "Method not found")
        return self._methods[method]

    def _initialize(self, request: Request) -> Json:
        return {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO}

    def _call(self, request: Request) -> Json:
        tool = TOOLS.get(request.params.get("name"))
        if tool is None:
            raise Refused(INVALID_PARAMS, f"Unknown tool: {request.params.get('name')}")
        found = tool(request)
        return found if "content" in found or "inputRequests" in found else {"content": [found]}


ONLY_LEGACY = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
CACHED = (
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "server/discover",
)
RESOURCES = [
    {"uri": "test://static-text", "name": "Static text", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "Static binary", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "Watched", "mimeType": "text/plain"},
]
TEMPLATES = [{"uriTemplate": "test://template/{id}/data", "name": "Template", "mimeType": "application/json"}]


def describe_tool(name: str) -> Json:
    """As `tools/list` has it."""
    asked = {"test_sampling": "prompt", "test_elicitation": "message"}.get(name)
    schema: Json = {"type": "object", "properties": {}}
    if asked is not None:
        schema = {"type": "object", "properties": {asked: {"type": "string"}}, "required": [asked]}
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema}


def describe_prompt(name: str) -> Json:
    """As `prompts/list` has it."""
    listed = [{"name": one, "description": one, "required": True} for one in PROMPTS[name]]
    return {"name": name, "description": f"The prompt {name}.", "arguments": listed}


def read(request: Request) -> Json:
    """Read a resource."""
    uri = str(request.params.get("uri"))
    found: Json
    if uri.startswith("test://template/") and uri.endswith("/data"):
        id = uri.split("/")[3]
        said = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
        found = {"mimeType": "application/json", "text": said}
    elif uri == "test://static-binary":
        found = {"mimeType": "image/png", "blob": PICTURE}
    elif uri in ("test://static-text", "test://watched-resource"):
        found = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
    else:
        code = INVALID_PARAMS if request.is_modern else -32002
        raise Refused(code, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, **found}]}


def get_prompt(request: Request) -> Json:
    """Fill in a prompt."""
    name, given = request.params.get("name"), request.arguments
    contents: list[Json]
    match name:
        case "test_simple_prompt":
            contents = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            contents = [
                text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
            ]
        case "test_prompt_with_embedded_resource":
            said = "Embedded resource content for testing."
            contents = [
                embedded(given.get("resourceUri"), "text/plain", said),
                text("Please process the resource."),
            ]
        case "test_prompt_with_image":
            contents = [picture(), text("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            answer = request.responses.get("user_context")
            if answer is None:
                return request.needs(user_context=ask_for("context", "What context should the prompt use?"))
            contents = [text(f"In the context of {answer['content']['context']}")]
        case _:
            raise Refused(INVALID_PARAMS, f"Unknown prompt: {name}")
    return {"messages": [{"role": "user", "content": one} for one in contents]}


if __name__ == "__main__":
    Server().run()

"""A small MCP server over stdio that keeps notes in a file. It speaks both eras, one message at a time, and
does what its caller says to the letter: so a test decides when it acts, dies and answers.

    python notes_server.py DIRECTORY

`notes` in the directory has a line for each effect, `seen` one for each message that the server has read.
A call with `task` is answered with a task of that name, which is under way until there is a file of its name;
what is in the file is said of it then.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PLACE = Path(sys.argv[1])
ANY = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "how": {"type": "object"}},
    "required": ["text"],
}
TOOLS = [
    {"name": "add", "description": "Add a note.", "inputSchema": ANY},
    {"name": "set", "inputSchema": ANY, "annotations": {"idempotentHint": True}},
    {"name": "find", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {
        "name": "count",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "outputSchema": {"type": "object", "properties": {"count": {"type": "integer"}}},
    },
    {
        "name": "add_structured",
        "inputSchema": ANY,
        "outputSchema": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
    },
]


def say(message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def note(name: str, text: str) -> None:
    with open(PLACE / name, "a") as file:
        file.write(text + "\n")


def list_notes() -> list[str]:
    path = PLACE / "notes"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(name: str) -> None:
    """Say that it waits, and wait until the test has made the file."""
    note("waiting", name)
    while not (PLACE / name).exists():
        if not PLACE.exists():
            sys.exit()  # The test is over.
        time.sleep(0.005)


def obey(how: dict[str, Any], moment: str) -> None:
    """What the call says is to happen before the effect (`first`) or after it (`then`)."""
    for order, value in (how.get(moment) or {}).items():
        if order == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif order == "kill":
            os.kill(os.getppid(), signal.SIGKILL)
        elif order == "wait":
            wait_for(value)
        elif order == "say":
            for one in value:
                os.write(1, (one if isinstance(one, str) else json.dumps(one)).encode() + b"\n")


tasks: dict[str, Any] = {}
"""The results of calls that are carried out as tasks."""


def describe_task(name: str, modern: bool) -> dict[str, Any]:
    """What `tasks/get` says: in the newer era with the result."""
    file = PLACE / name
    state: dict[str, Any] = {"taskId": name, "status": "working", "ttl": None}
    if file.exists():
        ended = {"status": "completed", **({"result": tasks[name]} if modern else {})}
        state.update(json.loads(file.read_text() or "null") or ended)
    return {"resultType": "complete", **state} if modern else state


def begin_task(id: Any, name: str, result: dict[str, Any], modern: bool) -> None:
    tasks[name] = result
    task = describe_task(name, modern)
    handle = {**task, "resultType": "task"} if modern else {"task": task, "_meta": {"odd": 1}}
    say({"jsonrpc": "2.0", "id": id, "result": handle})


def ask_task(id: Any, method: str, name: str, modern: bool) -> None:
    if method == "tasks/cancel":
        (PLACE / name).write_text('{"status": "cancelled"}')
    if method == "tasks/result":
        wait_for(name)
        if "error" in tasks[name]:
            say({"jsonrpc": "2.0", "id": id, "error": tasks[name]["error"]})
            return
    result = tasks[name] if method == "tasks/result" else describe_task(name, modern)
    say({"jsonrpc": "2.0", "id": id, "result": result})


def call(id: Any, params: dict[str, Any], modern: bool) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    how, text = arguments.get("how") or {}, arguments.get("text", "")
    obey(how, "first")
    result: dict[str, Any] = {"content": [{"type": "text", "text": f"{name}: {text}"}]}
    if name in ("add", "set", "add_structured") and not how.get("nothing"):
        note("notes", text)
    if name == "find":
        result["content"][0]["text"] = "\n".join(one for one in list_notes() if text in one) or "nothing"
    if name == "count":
        result["structuredContent"] = {"count": len(list_notes())}
    if name == "add_structured":
        result["structuredContent"] = {"line": len(list_notes())}
    obey(how, "then")
    if "silent" in how:
        return
    if "error" in how:
        say({"jsonrpc": "2.0", "id": id, "error": how["error"]})
        return
    result.update(how.get("result") or {})
    if how.get("odd"):
        result["structuredContent"] = {"a": float("nan"), "b": "\ud800"}
    if how.get("bare"):
        del result["content"]
    if "task" in how:
        begin_task(id, how["task"], how.get("end") or result, modern)
        return
    if modern:
        result.setdefault("resultType", "complete")
    say({"jsonrpc": "2.0", "id": id, "result": result})


def main() -> None:
    listed: list[Any] = list(TOOLS)
    note("started", str(os.getpid()))
    for line in sys.stdin.buffer:
        note("seen", line.decode().strip())
        message = json.loads(line)
        if isinstance(message, list):
            say([{"jsonrpc": "2.0", "id": one["id"], "result": {}} for one in message])
            continue
        method, params = message.get("method"), message.get("params") or {}
        modern = "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {})
        id = message.get("id")
        if method == "tools/call":
            call(id, params, modern)
        elif method == "tools/list":
            path = PLACE / "tools.json"
            tools = json.loads(path.read_text()) if path.exists() else listed
            page, cursor = int(params.get("cursor") or 0), dict[str, str]()
            if page + 3 < len(tools):
                cursor = {"nextCursor": str(page + 3)}
            say({"jsonrpc": "2.0", "id": id, "result": {"tools": tools[page : page + 3], **cursor}})
        elif method in ("tasks/get", "tasks/result", "tasks/cancel"):
            ask_task(id, method, params["taskId"], modern)
        elif method == "initialize":
            offered = {"tools": {"listChanged": True}}
            info = {"name": "notes", "version": "1"}
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": offered,
                "serverInfo": info,
            }
            say({"jsonrpc": "2.0", "id": id, "result": result})
        elif method == "test/say":
            for one in params["lines"]:
                os.write(1, one.encode() + b"\n")
        elif method == "test/exit":
            sys.exit(params["code"])
        elif id is not None and method is not None:
            say({"jsonrpc": "2.0", "id": id, "result": {"echo": message}})


main()

"""What is asked of each server: every tool, resource and prompt that can answer the same twice.

A script plays with a `Player` and returns all answers, in order. What differs by itself from one time to the
next (the time of day) is replaced by a word.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

from .player import Era, Json, Player
from .servers import from_npm, from_pypi

ANSWERS: Mapping[str, Json] = {
    "roots/list": {"roots": [{"uri": "file:///src", "name": "source"}]},
    "sampling/createMessage": {
        "model": "m",
        "role": "assistant",
        "content": {"type": "text", "text": "as you like"},
        "stopReason": "endTurn",
    },
    "elicitation/create": {"action": "accept", "content": {"name": "Ann", "check": True}},
}
CONFORMING = [sys.executable, "-S", "-E", str(Path(__file__).with_name("conforming_server.py"))]
SOURCE_DATE = "2026-01-02T03:04:05Z"


class Script(NamedTuple):
    """A server, and what is asked of it in a fresh folder."""

    name: str
    command: Callable[[Path], list[str]]
    play: Callable[[Player, Path], list[Json]]
    eras: tuple[Era, ...] = ("legacy",)
    environment: Callable[[Path], dict[str, str]] = lambda place: {}


def same_each_time(said: Json) -> Json:
    """The same without times of day, and names that are up to chance."""
    # Of a resource in base64, what is in it.
    said = json.loads(json.dumps(said), object_hook=_decode_blob)
    text = json.dumps(said, sort_keys=True, ensure_ascii=False)
    text = re.sub(r"\b\d{1,2}:\d\d:\d\d [AP]M\b", "WHEN", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "WHEN", text)
    text = re.sub(
        r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4} \([\w ]+\)", "WHEN", text
    )
    text = re.sub(r'"taskId": "[0-9a-f]{32}"', '"taskId": "TASK"', text)
    return json.loads(text)


def _decode_blob(found: dict[str, Json]) -> dict[str, Json]:
    if not isinstance(found.get("blob"), str):
        return found
    return {**found, "blob": base64.b64decode(found["blob"]).decode("utf-8", "backslashreplace")}


def tools_called(answer: Json) -> list[str]:
    """The names in the answer to `tools/list`."""
    return [one["name"] for one in answer["result"]["tools"]]


# -- time, git, fetch ------------------------------------------------------------------------------------


def play_time(player: Player, place: Path) -> list[Json]:
    """It only reads."""
    zones = {"source_timezone": "Asia/Tokyo", "target_timezone": "Asia/Kathmandu", "time": "07:30"}
    return [
        player.begin(),
        player.request("tools/list", {}),
        player.call("get_current_time", {"timezone": "Asia/Tokyo"}),
        player.call("convert_time", zones),
        player.call("convert_time", {**zones, "time": "25:99"}),
        player.call("get_current_time", {"timezone": "Nowhere/Land"}),
        player.call("no_such_tool", {}),
        player.request("no/such/method", {}),
        *([player.request("ping")] if player.era == "legacy" else []),
    ]


def make_repository(place: Path) -> Path:
    """A repository with one commit, and a change."""
    repository = place / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir()
    (repository / "a.txt").write_text("one\n")
    for words in (
        "init -q -b main",
        "config user.name Ann",
        "config user.email ann@example.org",
        "config commit.gpgsign false",
        "add .",
        "commit -q -m first",
    ):
        run_git(repository, *words.split())
    (repository / "a.txt").write_text("two\n")
    return repository


def run_git(repository: Path, *words: str) -> str:
    """What git says, whatever is configured on this machine."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": SOURCE_DATE,
        "GIT_COMMITTER_DATE": SOURCE_DATE,
    }
    done = subprocess.run(
        ["git", *words],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def play_git(player: Player, place: Path) -> list[Json]:
    """Reads and commits."""
    repository = {"repo_path": str(make_repository(place))}
    return [
        player.begin(),
        player.request("tools/list", {}),
        player.call("git_status", repository),
        player.call("git_diff_unstaged", repository),
        player.call("git_commit", {**repository, "message": "nothing is staged"}),
        player.call("git_add", {**repository, "files": ["a.txt"]}),
        player.call("git_diff_staged", repository),
        player.call("git_reset", repository),
        player.call("git_add", {**repository, "files": ["."]}),
        player.call("git_commit", {**repository, "message": 'second: é, "quoted"\nand more'}),
        player.call("git_create_branch", {**repository, "branch_name": "other"}),
        player.call("git_create_branch", {**repository, "branch_name": "other"}),
        player.call("git_checkout", {**repository, "branch_name": "other"}),
        player.call("git_branch", {**repository, "branch_type": "local"}),
        player.call("git_log", {**repository, "max_count": 5}),
        player.call("git_show", {**repository, "revision": "HEAD"}),
        player.call("git_show", {**repository, "revision": "nowhere"}),
        player.call("git_status", {"repo_path": str(place)}),
    ]


@contextmanager
def web_page() -> Iterator[str]:
    """The address of a page on this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/page.html"
            body = b"<html><body><article><h1>Title</h1><p>Said at length.</p></article></body></html>"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            if found:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/page.html"
        finally:
            server.shutdown()
            thread.join()


def play_fetch(player: Player, place: Path) -> list[Json]:
    """Tools and a prompt."""
    url = (place / "url").read_text()
    return [
        player.begin(),
        player.request("tools/list", {}),
        player.request("prompts/list", {}),
        player.call("fetch", {"url": url, "max_length": 40}),
        player.call("fetch", {"url": url, "raw": True}),
        player.call("fetch", {"url": f"{url}.gone"}),
        player.request("prompts/get", {"name": "fetch", "arguments": {"url": url}}),
        player.request("prompts/get", {"name": "no_such_prompt"}),
    ]


# -- everything, filesystem, memory ----------------------------------------------------------------------

RESOURCE = "demo://resource/dynamic/text/1"


def begin_everything(player: Player) -> Json:
    """It asks for the roots a moment after the beginning, and says so then. It does not end before."""
    answer = player.begin()
    player.wait_for("roots/list")
    player.wait_for("notifications/message")
    return answer


def play_tasks(player: Player, place: Path) -> list[Json]:
    """A tool that is carried out later, as a task."""
    name = "simulate-research-query"
    params = {"name": name, "arguments": {"topic": "crashes"}, "task": {"ttl": 60_000}}
    answers = [
        begin_everything(player),
        player.request("tools/list", {}),
        player.request("tools/call", params),
    ]
    task = answers[-1]["result"]["task"]["taskId"]
    answers += [
        player.request("tasks/result", {"taskId": task}),
        player.request("tasks/get", {"taskId": task}),
        player.request("tasks/list", {}),
        player.request("tasks/cancel", {"taskId": task}),
        player.request("tasks/get", {"taskId": "no such task"}),
    ]
    player.process.terminate()  # By itself, it would stay until the task is forgotten.
    return answers


def play_everything(player: Player, place: Path) -> list[Json]:
    """Every kind of message that there is in the older era."""
    answers = [
        begin_everything(player),
        player.request("tools/list", {}),
        player.call("echo", {"message": "é\u2028\U0001f600 \"'\\"}),
        player.call("get-sum", {"a": 2, "b": 3.5}),
        player.call("get-tiny-image"),
        player.call("get-annotated-message", {"messageType": "error", "includeImage": True}),
        player.call("get-resource-links", {"count": 4}),
        player.call("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        player.call("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
        player.call("get-structured-content", {"location": "Chicago"}),
        player.call("get-roots-list"),
        player.call(
            "gzip-file-as-resource",
            {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"},
        ),
        player.call("trigger-sampling-request", {"prompt": "how?", "maxTokens": 7}),
        player.call("trigger-elicitation-request"),
        player.call("trigger-long-running-operation", {"duration": 0.3, "steps": 3}, progressToken="p-1"),
        player.call("trigger-long-running-operation", {"duration": 0.2, "steps": 2}, progressToken=7),
        player.call("toggle-subscriber-updates"),
        player.call("toggle-subscriber-updates"),
        player.request("prompts/list", {}),
        player.request("prompts/get", {"name": "simple-prompt"}),
        player.request("prompts/get", {"name": "args-prompt", "arguments": {"city": "Rome"}}),
        player.request("prompts/get", {"name": "args-prompt"}),
        player.request("resources/list", {}),
        player.request("resources/templates/list", {}),
        player.request("resources/read", {"uri": RESOURCE}),
        player.request("resources/read", {"uri": "demo://resource/dynamic/blob/2"}),
        player.request("resources/read", {"uri": "demo://no-such-thing"}),
        player.request("resources/subscribe", {"uri": RESOURCE}),
        player.request("resources/unsubscribe", {"uri": RESOURCE}),
        player.request("logging/setLevel", {"level": "debug"}),
        player.request(
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "completable-prompt"},
                "argument": {"name": "department", "value": "S"},
            },
        ),
        player.call("no-such-tool", {}),
        player.request("no/such/method", {}),
        player.request("ping"),
    ]
    # A call that is cancelled has no answer, and the connection goes on. This server works on all the same.
    slow = {"name": "trigger-long-running-operation", "arguments": {"duration": 2, "steps": 20}}
    number = player.send("tools/call", {**slow, "_meta": {"progressToken": "slow"}})
    player.wait_for("notifications/progress", 6)
    player.notify("notifications/cancelled", {"requestId": number, "reason": "too long"})
    answers.append(player.request("ping"))
    player.wait_for("notifications/progress", 25)
    answers.append(player.request("ping"))
    player.notify("notifications/roots/list_changed")
    player.wait_for("roots/list", 2)
    # That it has them, as at the beginning; in between, that something was subscribed to, and no longer.
    player.wait_for("notifications/message", 4)
    return answers


def play_memory(player: Player, place: Path) -> list[Json]:
    """Writes, and a subscription to what is written."""
    ann = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
    bob = {"name": "Bob", "entityType": "person", "observations": []}
    knows = {"from": "Ann", "to": "Bob", "relationType": "knows"}
    graph = {"uri": "memory://knowledge-graph"}
    answers = [
        player.begin(),
        player.request("tools/list", {}),
        player.request("resources/list", {}),
        player.request("resources/subscribe", graph),
        player.call("create_entities", {"entities": [ann, bob]}),
        player.call("create_relations", {"relations": [knows]}),
        player.call(
            "add_observations", {"observations": [{"entityName": "Bob", "contents": ["naïve", "tall"]}]}
        ),
        player.call("add_observations", {"observations": [{"entityName": "Eve", "contents": ["unknown"]}]}),
        player.call("read_graph"),
        player.call("search_nodes", {"query": "tea"}),
        player.call("open_nodes", {"names": ["Bob"]}),
        player.request("resources/read", graph),
        player.call("delete_observations", {"deletions": [{"entityName": "Bob", "observations": ["tall"]}]}),
        player.call("delete_relations", {"relations": [knows]}),
        player.call("delete_entities", {"entityNames": ["Ann"]}),
        player.request("resources/unsubscribe", graph),
        player.call("create_entities", {"entities": [ann]}),
        player.call("read_graph"),
    ]
    player.wait_for("notifications/resources/updated", 6)
    return answers


def play_filesystem(player: Player, place: Path) -> list[Json]:
    """Writes, moves and reads."""
    root = place / "files"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    a, b = str(root / "a.txt"), str(root / "b" / "c.txt")
    change = {"oldText": "one", "newText": "two"}
    return [
        player.begin(),
        player.request("tools/list", {}),
        player.call("list_allowed_directories"),
        player.call("write_file", {"path": a, "content": "one\nline é\n"}),
        player.call("edit_file", {"path": a, "edits": [change], "dryRun": True}),
        player.call("edit_file", {"path": a, "edits": [change]}),
        player.call("edit_file", {"path": a, "edits": [change]}),
        player.call("create_directory", {"path": str(root / "b")}),
        player.call("move_file", {"source": a, "destination": b}),
        player.call("move_file", {"source": a, "destination": b}),
        player.call("read_text_file", {"path": b}),
        player.call("read_text_file", {"path": b, "head": 1}),
        player.call("read_media_file", {"path": b}),
        player.call("list_directory", {"path": str(root)}),
        player.call("directory_tree", {"path": str(root)}),
        player.call("search_files", {"path": str(root), "pattern": "**/*.txt"}),
        player.call("get_file_info", {"path": b}),
        player.call("read_text_file", {"path": "/etc/hostname"}),
        player.call("no_such_tool", {}),
    ]


# -- a server of our own: what the others do not do in both eras -------------------------------------------


def play_conforming(player: Player, place: Path) -> list[Json]:
    """Asking for something in the middle of a call, in the way of each era, and subscriptions."""
    answers = [player.begin(), player.request("tools/list", {})]
    # Those that ask on the way follow, in the way of the era.
    asking = re.compile("test_(input_required|sampling|elicitation)|.*streaming")
    names = tools_called(answers[1])
    answers += [player.call(one, {}, progressToken=one) for one in names if not asking.match(one)]
    if player.era == "legacy":
        answers.append(player.call("test_sampling", {"prompt": "how?"}))
        answers.append(player.call("test_elicitation", {"message": "who?"}))
        answers.append(player.call("test_elicitation_sep1330_enums"))
        return answers
    said: dict[str, Json] = {
        "elicitation/create": {"action": "accept", "content": {"name": "Ann", "ok": True, "color": "red"}},
        "sampling/createMessage": ANSWERS["sampling/createMessage"],
        "roots/list": ANSWERS["roots/list"],
    }
    for tool in filter(lambda one: "required" in one, names):
        params: dict[str, Json] = {"name": tool, "arguments": {}}
        for _ in range(3):
            answers.append(player.request("tools/call", params))
            result = answers[-1].get("result", {})
            if result.get("resultType") != "input_required":
                break
            asked = result.get("inputRequests", {})
            params = {**params, "inputResponses": {key: said[one["method"]] for key, one in asked.items()}}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        else:
            raise AssertionError(f"{tool} asked without an end")
    number = player.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    player.wait_for("notifications/subscriptions/acknowledged")
    answers.append(player.call("test_trigger_prompt_change"))
    answers.append(player.call("test_trigger_tool_change"))
    player.wait_for("notifications/tools/list_changed")
    player.notify("notifications/cancelled", {"requestId": number})
    answers.append(player.call("test_trigger_tool_change"))
    return answers


def _filesystem(place: Path) -> list[str]:
    (place / "files").mkdir(exist_ok=True)
    return from_npm("filesystem", str(place / "files"))


BOTH: tuple[Era, ...] = ("legacy", "modern")
SCRIPTS = (
    Script("time", lambda place: from_pypi("time", "--local-timezone", "UTC"), play_time, BOTH),
    Script(
        "git",
        lambda place: from_pypi("git"),
        play_git,
        BOTH,
        lambda place: {"GIT_AUTHOR_DATE": SOURCE_DATE, "GIT_COMMITTER_DATE": SOURCE_DATE},
    ),
    Script("fetch", lambda place: from_pypi("fetch", "--allow-private-ips"), play_fetch, BOTH),
    Script("conforming", lambda place: CONFORMING, play_conforming, BOTH),
    Script("everything", lambda place: from_npm("everything"), play_everything),
    Script("tasks", lambda place: from_npm("everything"), play_tasks),
    Script("filesystem", _filesystem, play_filesystem),
    Script(
        "memory",
        lambda place: from_npm("memory"),
        play_memory,
        environment=lambda place: {"MEMORY_FILE_PATH": str(place / "memory.jsonl")},
    ),
)

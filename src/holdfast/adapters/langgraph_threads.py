"""Reading threads of LangGraph for people, without LangGraph.

`langgraph/thread_index.py` describes the entries of a thread, and `langgraph/delta_encode.py` its values.
Here values are read as plain JSON, and nothing that a stored name refers to is looked up: a message is a dict
of its fields, in LangChain's names; a value of another class is `{"<class>": <its fields>}`. What was
encrypted, and what contains large content that is in blobs, is only named.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..content.message_blocks import LANGCHAIN
from ..core.entries import ADAPTER_PREFIX, AdapterBody, Entry
from ..errors import Corrupt
from ..ids import label_of_original
from ..messages import CallPart, ForeignMessage, Json, ResultPart, Role

THREAD_LABEL: Final = "langgraph.thread"
NAMESPACE_LABEL: Final = "langgraph.namespace"
CALLER_LABEL: Final = "langgraph.caller"
"""What the program calls where it is no graph: `agent`, of LangChain. On the ledger."""
ADAPTER_LABEL: Final = "adapter"
THREADS: Final = "langgraph"
"""The value of the label `adapter` of a session that has checkpoints …"""
LEDGERS: Final = "langgraph.tools"
"""… and of one that has the effects of a thread's tools."""

_PREFIX: Final = f"{ADAPTER_PREFIX}langgraph."
_ROLES: Final[Mapping[str, Role]] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_MADE_WITH: Final = "ls_integration"
"""Where the metadata of a checkpoint names what made the graph …"""
_MAKE_AGENTS: Final = frozenset({"langchain_create_agent", "deepagents"})
"""… and what of it makes agents, as their users call them."""
_GO_TO: Final = "branch:to:"
_INTERRUPT, RESUME, _ERROR, _SENDS = "__interrupt__", "__resume__", "__error__", "__pregel_tasks"


def thread_labels(thread: str) -> dict[str, str]:
    """The label of all sessions of a thread: of its namespaces, and of the ledger of its tools."""
    return {THREAD_LABEL: label_of_original(thread)}


class ThreadWrites(Struct, kw_only=True):
    """What a task wrote after a checkpoint."""

    seq: int
    at: datetime
    task: str
    path: str
    """Where LangGraph has put the task."""
    node: str
    """Empty if the node is not known."""
    values: list[tuple[str, Json]]
    step: int = 0
    """The step that it is part of."""

    @property
    def messages(self) -> list[ForeignMessage]:
        """The messages among them."""
        listed = [one for _, value in self.values for one in as_list(value)]
        return [_as_message(one, self.at) for one in listed if is_message(one)]

    @property
    def interrupts(self) -> list[Json]:
        """What it asked for."""
        asked = [value for channel, value in self.values if channel == _INTERRUPT]
        return [_value_of(one) for many in asked for one in as_list(many)]

    @property
    def errors(self) -> list[str]:
        """What it failed with."""
        return [str(value) for channel, value in self.values if channel == _ERROR]

    @property
    def is_done(self) -> bool:
        """Whether it ended, and its node is not run again."""
        return any(channel not in (_INTERRUPT, RESUME, _ERROR) for channel, _ in self.values)


class ThreadCheckpoint(Struct, kw_only=True):
    """A checkpoint, and what is new in it."""

    id: str
    seq: int
    at: datetime
    parent: str | None
    step: int
    source: str
    nodes: list[str] = []
    """The nodes that ran before it."""
    tasks: list[str] = []
    messages: list[ForeignMessage] = []
    """The messages that its parent did not have."""
    removed: int = 0
    """How many messages of its parent it does not have."""
    values: dict[str, Json] = {}
    """Channels with another value than in its parent. Of a list that grew: what is new."""
    next: list[str] = []
    """The nodes that run next, as far as the channels tell."""
    writes: list[ThreadWrites] = []
    """What was written after it."""

    @property
    def unanswered(self) -> list[Json]:
        """The interrupts that have no answer."""
        waiting = [one for one in self.writes if one.interrupts and not one.is_done]
        answered = any(channel == RESUME for one in self.writes for channel, _ in one.values)
        return [] if answered else [asked for one in waiting for asked in one.interrupts]

    @property
    def errors(self) -> list[str]:
        """What tasks after it failed with."""
        return [error for one in self.writes if not one.is_done for error in one.errors]

    @property
    def is_last(self) -> bool:
        """Whether the graph had ended there."""
        return not self.next and not self.writes


class ThreadHistory:
    """The checkpoints of one namespace of a thread, folded from all entries of its journal."""

    def __init__(self) -> None:
        self.thread = ""
        self.namespace = ""
        self.caller: str | None = None
        """What the program calls where it is no graph."""
        self.checkpoints: dict[str, ThreadCheckpoint] = {}
        """In the order in which they were put."""
        self._channels: dict[str, dict[str, Json]] = {}
        self._seen: dict[str, dict[str, Json]] = {}
        self._ahead: dict[str, list[ThreadWrites]] = {}
        """Writes that were stored before their checkpoint."""
        self._values = _Values()
        self._known_since: dict[str, datetime] = {}
        """When each message was new, by its identity."""

    @property
    def latest(self) -> ThreadCheckpoint | None:
        """The checkpoint that the thread goes on from."""
        return self.checkpoints[max(self.checkpoints)] if self.checkpoints else None

    def get_channels(self, id: str) -> Mapping[str, Json]:
        """The values of a checkpoint, by channel."""
        return self._channels[id]

    @property
    def messages(self) -> list[ForeignMessage]:
        """The messages of the latest checkpoint."""
        latest = self.latest
        channels = {} if latest is None else self._channels[latest.id]
        return [
            _as_message(one, self._known_since.get(_identify(one)))
            for name, value in channels.items()
            if _has_messages(value) and not name.startswith("__")
            for one in value
        ]

    def apply(self, entry: Entry) -> ThreadCheckpoint | ThreadWrites | None:
        """Fold the next entry; what it adds."""
        body = entry.body
        if not isinstance(body, AdapterBody) or not entry.kind.startswith(_PREFIX):
            return None
        data: Any = body.data
        kind = entry.kind.removeprefix(_PREFIX)
        if kind == "named":
            self.thread, self.namespace = data["thread"], data["ns"]
            return None
        if kind not in ("put", "writes", "kept") or entry.content is None:
            return None
        try:
            content = msgspec.json.decode(entry.content)
            self._values.add(data.get("n", 0), content.get("elements") or ())
            if kind == "put":
                return self._put(entry, data["id"], data.get("parent"), content)
            if kind == "kept":
                self._keep(entry, content, dict(data["left"]))
                return None
            writes = [(content["task"], content["path"], *one) for one in content["writes"]]
            return self._write(entry, data["id"], writes)
        except (
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            RecursionError,
            msgspec.MsgspecError,
        ) as error:
            raise Corrupt("a LangGraph thread", f"it makes no sense ({error!r})", seq=entry.seq) from error

    def _put(self, entry: Entry, id: str, parent: str | None, record: Mapping[str, Any]) -> ThreadCheckpoint:
        read = self._values.read
        doc, meta, channels = read(record["doc"]), read(record["meta"]), read(record["channels"])
        self.caller = "agent" if meta.get(_MADE_WITH) in _MAKE_AGENTS else None
        found = ThreadCheckpoint(
            id=id,
            seq=entry.seq,
            at=_time_of(doc.get("ts"), entry.at),
            parent=parent,
            step=meta.get("step", 0),
            source=meta.get("source", ""),
            writes=self._ahead.pop(id, []),
        )
        found.next = [name.removeprefix(_GO_TO) for name in channels if name.startswith(_GO_TO)]
        found.next += [_node_of_send(one) for one in channels.get(_SENDS) or ()]
        for written in found.writes:
            written.node = written.node or _node_sent_to(written.path, channels)
        self.checkpoints[id] = found
        self._channels[id], self._seen[id] = channels, doc.get("versions_seen", {})
        self._compare(found)
        return found

    def _compare(self, found: ThreadCheckpoint) -> None:
        """Find out what is new in a checkpoint, and which nodes made it."""
        parent = self.checkpoints.get(found.parent or "")
        channels, before = self._channels[found.id], self._channels.get(found.parent or "", {})
        written = [] if parent is None else [one for one in parent.writes if one.is_done]
        seen, known = self._seen[found.id], self._seen.get(found.parent or "", {})
        nodes = [one.node for one in written] + [node for node, at in seen.items() if known.get(node) != at]
        found.nodes = [one for one in dict.fromkeys(nodes) if one and not one.startswith("__")]
        found.tasks = [one.task for one in written]
        for name, value in channels.items():
            if name.startswith(("__", _GO_TO)):
                continue
            if _has_messages(value):
                old: Any = before.get(name)
                self._compare_messages(found, value, old if _has_messages(old) else [])
            elif name not in before or before[name] != value:
                found.values[name] = _find_growth(before.get(name), value)
        for one in written:  # A delta channel has no value in most checkpoints.
            for name, value in one.values:
                if name not in channels and _has_messages(value):
                    found.messages += [_as_message(each, found.at) for each in value]

    def _compare_messages(self, found: ThreadCheckpoint, now: Sequence[Json], before: Sequence[Json]) -> None:
        known = {_identify(one): one for one in before}
        for one in now:
            self._known_since.setdefault(_identify(one), found.at)
        found.messages += [_as_message(one, found.at) for one in now if known.get(_identify(one)) != one]
        found.removed += len(known.keys() - {_identify(one) for one in now})

    def _write(self, entry: Entry, id: str, writes: Iterable[Sequence[Any]]) -> ThreadWrites | None:
        """Add what one task has written."""
        listed = [(task, path, channel, self._values.read(value)) for task, path, _, channel, value in writes]
        if not listed:
            return None
        task, path = listed[0][:2]
        node = _node_of(path) or _node_sent_to(path, self._channels.get(id, {}))
        found = ThreadWrites(
            seq=entry.seq,
            at=entry.at,
            task=task,
            path=path,
            node=node,
            values=[(channel, value) for _, _, channel, value in listed],
        )
        known = self.checkpoints.get(id)
        found.step = 0 if known is None else known.step + 1
        (known.writes if known is not None else self._ahead.setdefault(id, [])).append(found)
        return found

    def _keep(self, entry: Entry, content: Mapping[str, Any], left: Mapping[str, str | None]) -> None:
        """Only some checkpoints are left; what was read before stays where it is one of them."""
        known = self.checkpoints
        self.checkpoints, self._ahead = {}, {}
        for record in content.get("records") or ():
            id = record["id"]
            if id not in known:
                self._put(entry, id, left.get(id), record)
                self._keep_writes(entry, id, record.get("writes") or ())
            else:
                self.checkpoints[id] = known[id]
        for id, writes in (content.get("ahead") or {}).items():
            self._keep_writes(entry, id, writes)

    def _keep_writes(self, entry: Entry, id: str, writes: Iterable[Sequence[Any]]) -> None:
        by_task: dict[str, list[Sequence[Any]]] = {}
        for one in writes:
            by_task.setdefault(one[0], []).append(one)
        for listed in by_task.values():
            self._write(entry, id, listed)


def list_questions(asked: Iterable[Json]) -> list[Json]:
    """What nodes themselves ask, of interrupts: holdfast's own are about calls, which the ledger has."""
    return [one for one in asked if not (isinstance(one, dict) and "holdfast" in one)]


def fold_thread(entries: Iterable[Entry]) -> ThreadHistory:
    """The checkpoints in a journal."""
    history = ThreadHistory()
    for entry in entries:
        history.apply(entry)
    return history


# -- values ---------------------------------------------------------------------------------------------


class _Values:
    """The elements of a thread, as plain JSON."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}
        self._read: dict[int, Json] = {}

    def add(self, first: int, elements: Sequence[Any] | Mapping[str, Any]) -> None:
        """Elements from this number on, or by their numbers."""
        if isinstance(elements, Mapping):
            self._parts.update((int(number), part) for number, part in elements.items())
        else:
            self._parts.update(enumerate(elements, first))

    def read(self, part: Any) -> Json:
        """The value of a node. It is shared: do not change it."""
        if not isinstance(part, list):
            return part
        tag = part[0]
        match tag:
            case "r":
                number = part[1]
                if number not in self._read:
                    self._read[number] = self.read(self._parts[number])
                return self._read[number]
            case "m":
                _, names, cut = self._parts[part[1]]
                return _read_message(names, [*map(b64decode, cut)], part[2])
            case "b":
                return _read_bytes(part[1], b64decode(part[2]))
            case "c" | "u":
                return "[with large content, in blobs]"
            case "l":
                return self._read_list(part)
            case "d":
                return self._read_dict(part)
            case "t":
                return [self.read(one) for one in part[1]]
            case "s":
                return self.read(part[1])
            case "j":
                return part[1]
            case "i":
                return int(part[1], 16)
        raise ValueError(f"there is no part {tag!r}")

    def _read_list(self, part: list[Any]) -> list[Json]:
        grown_from = self.read(["r", part[2]]) if len(part) > 2 else []
        items: list[Json] = []
        for one in part[1]:
            if isinstance(one, list) and one[0] == "k":
                items += grown_from[one[1] : one[2]]
            elif isinstance(one, list) and one[0] == "x":
                items += self.read(one[1]) or ()
            else:
                items.append(self.read(one))
        return items

    def _read_dict(self, part: list[Any]) -> dict[str, Json]:
        members: dict[str, Json] = dict(self.read(["r", part[2]])) if len(part) > 2 else {}
        for key in part[3] if len(part) > 3 else ():
            members.pop(key, None)
        members.update((key, self.read(one)) for key, one in part[1].items())
        return members


_pack = msgspec.msgpack.Encoder().encode


def _read_message(names: Sequence[str], cut: Sequence[bytes], texts: Sequence[str]) -> Json:
    """A message of a form: what LangGraph's serializer wrote around its texts, with these in it."""
    packed = [cut[0]]
    for text, part in zip(texts, cut[1:], strict=True):
        packed += (_pack(text), part)
    return _open(_PYDANTIC, b"".join(packed))


def _read_bytes(form: str, data: bytes) -> Json:
    """What LangGraph's serializer wrote of a value."""
    match form:
        case "null":
            return None
        case "msgpack":
            return _plain(msgspec.msgpack.decode(data, ext_hook=_open))
        case "json":
            return msgspec.json.decode(data)
        case "bytes" | "bytearray":
            return f"[{len(data):,} bytes]"
        case _:
            return "[encrypted]" if "+" in form else f"[{form}]"


_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC, _NUMPY, _SNAPSHOT = range(8)


def _open(code: int, data: bytes | memoryview) -> Json:
    """A value of a class, as its serializer packs it: module, name, what it is made of."""
    packed = _plain(msgspec.msgpack.decode(bytes(data), ext_hook=_open))
    if code == _SNAPSHOT:
        return packed
    if code == _NUMPY:
        return f"[an array, {len(data):,} bytes]"
    module, name, given = packed[:3]
    if module.startswith("langchain_core.messages") and isinstance(given, dict):
        kind = str(given.get("type", "")).removesuffix("MessageChunk").lower()
        return {**given, "type": kind or "message"}
    if name == "UnknownValue" and isinstance(given, dict):
        return f"[{given.get('module')}.{given.get('name')}]"
    # A set, an id, a time: what it is made of says enough.
    return given if code in (_SINGLE, _METHOD) else {name: given}


def _plain(value: Any) -> Json:
    """The value with nothing in it that JSON cannot hold."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return f"[{len(value):,} bytes]"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# -- what is read of them --------------------------------------------------------------------------------


def as_list(value: Json) -> list[Json]:
    """The value if it is a list, else a list of it."""
    return value if isinstance(value, list) else [value]


def is_message(value: Json) -> bool:
    """Whether a value is a message of LangChain."""
    return isinstance(value, dict) and "content" in value and isinstance(value.get("type"), str)


def _has_messages(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_message, value))


def _identify(message: Mapping[str, Json]) -> str:
    """A message's id, or (of one without) all of it."""
    id = message.get("id")
    return id if isinstance(id, str) else msgspec.json.encode(message).decode()


def _as_message(data: dict[str, Json], at: datetime | None) -> ForeignMessage:
    role = _ROLES.get(str(data["type"]), "user")
    id = data.get("id")
    calls = data.get("tool_calls") or ()
    parts: list[CallPart | ResultPart] = [CallPart(str(call["id"]), str(call["name"])) for call in calls]
    if role == "tool":
        parts.append(ResultPart(str(data.get("tool_call_id"))))
    return ForeignMessage(
        format=LANGCHAIN,
        data=data,
        role=role,
        parts=tuple(parts),
        id=id if isinstance(id, str) else None,
        at=at,
    )


def _find_growth(before: Json, now: Json) -> Json:
    """What is new in a list that grew; else the value."""
    if isinstance(before, list) and isinstance(now, list) and before and now[: len(before)] == before:
        return now[len(before) :]
    return now


def _value_of(interrupt: Json) -> Json:
    """What an interrupt was called with."""
    fields = interrupt.get("Interrupt") if isinstance(interrupt, dict) else None
    return fields.get("value") if isinstance(fields, dict) else interrupt


def _node_of(path: str) -> str:
    """The node of a task that the graph itself has started."""
    kind, _, name = path.partition(", ")
    return name if kind == "~__pregel_pull" else ""


def _node_sent_to(path: str, channels: Mapping[str, Json]) -> str:
    """The node of a task that another node has sent; `channels` are those of the checkpoint before it."""
    kind, _, place = path.partition(", ")
    number = place.partition(",")[0]
    sent = channels.get(_SENDS)
    if kind != "~__pregel_push" or not number.isdecimal() or not isinstance(sent, list):
        return ""
    return _node_of_send(sent[int(number)]) if int(number) < len(sent) else ""


def _node_of_send(send: Json) -> str:
    """The node that a node has sent something to."""
    given = send.get("Send") if isinstance(send, dict) else send
    return str(given[0]) if isinstance(given, list) and given else "?"


def _time_of(text: Json, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return otherwise

"""What each agent of a thread sees: its own replies as replies, those of the others as user messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from ..messages import FINAL, AnyMessage, Json, Message, Text
from ..session.session import Session
from .loop import AgentView
from .output import is_nudge

ThreadRole: TypeAlias = Literal["agent", "advisor", "moderator", "summarizer"]
MARK: Final = "thread"
"""The key in a message's metadata: the role of its author in the thread, and the iteration."""

_GO_ON: Final = Message(role="user", blocks=(Text("Go on."),))


class MemberView(AgentView, frozen=True, kw_only=True):
    """A thread as one of its agents sees it. `window`: how many messages it sees besides the one with the id
    `topic`; the summary covers the others."""

    agent: str
    role: ThreadRole
    window: int | None = None
    topic: str | None = None

    def list_messages(self, session: Session) -> Sequence[AnyMessage]:
        """The messages that the agent is shown."""
        seen = list(_list_as_seen_by(self.agent, session.transcript))
        if self._spoke_last(seen):
            seen.append(_GO_ON)
        if self.window is None or len(seen) <= self.window + 1:
            return seen
        first = len(seen) - self.window
        while first > 0 and seen[first].role == "tool":
            first -= 1  # Results are shown with their calls.
        # A topic inside the window is shown anyway; but a prompt must not begin with a reply.
        topic = next((one for one in seen[:first] if one.id == self.topic), seen[0])
        return [topic, *seen[max(first, 1) :]]

    def _spoke_last(self, seen: Sequence[AnyMessage]) -> bool:
        """Whether no other agent spoke since this agent's last turn: then it is asked to go on."""
        if not seen or seen[-1].role not in ("assistant", "tool"):
            return False
        reply = next((one for one in reversed(seen) if one.role == "assistant"), None)
        return not isinstance(reply, Message) or mark_of(reply) != self.metadata[MARK]

    def add_instructions(self, session: Session, instructions: str) -> str:
        """The instructions, with the agent's name and the running summary."""
        told = f"You are {self.agent}. What others say begins with their name in brackets."
        summary = f"The discussion so far, in short: {session.summary}" if session.summary else ""
        return "\n\n".join(part for part in (instructions, told, summary) if part)


def _list_as_seen_by(name: str, transcript: Iterable[AnyMessage]) -> Iterable[AnyMessage]:
    author: str | None = None
    for message in transcript:
        if not isinstance(message, Message):
            yield message
        elif message.role == "assistant":
            author = message.agent
            if author == name:
                yield message
            elif said := _text_for_others(message):
                yield Message(role="user", blocks=(Text(f"[{author}] {said}"),), id=message.id, at=message.at)
        elif message.role == "tool" or is_nudge(message):
            if author == name:
                yield message
        else:
            yield message


def _text_for_others(message: Message) -> str:
    """What the other agents see of a reply. A summary is part of their instructions instead."""
    role = mark_of(message).get("role")
    if role == "summarizer":
        return ""
    given = find_final(message)
    if given is None:
        return message.text
    if role == "moderator":
        return str(given.get("note", ""))
    return msgspec.json.encode(given).decode()


def mark_of(message: Message) -> dict[str, Json]:
    """The role and the iteration in a message's metadata."""
    found = message.metadata.get(MARK)
    return found if isinstance(found, dict) else {}


def find_final(message: Message) -> dict[str, Json] | None:
    """The output of a reply, if it is not plain text."""
    for call in message.tool_calls:
        if call.name == FINAL and isinstance(call.args, dict):
            return call.args
    return None

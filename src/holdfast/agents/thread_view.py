"""What each agent of a thread sees: its own words as its own, everybody else's as somebody else's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from ..messages import FINAL, AnyMessage, Json, Message, Text
from ..session.session import Session
from .loop import Part
from .output import is_nudge

ThreadRole: TypeAlias = Literal["agent", "advisor", "moderator", "summarizer"]
MARK: Final = "thread"
"""Where a message of a thread says what its author is there, and in which iteration it was said."""


_GO_ON: Final = Message(role="user", blocks=(Text("Go on."),))


class Seat(Part, frozen=True, kw_only=True):
    """An agent's place in a thread. `window`: how many messages it sees besides that with the id `topic`; the
    summary is for the rest."""

    agent: str
    role: ThreadRole
    window: int | None = None
    topic: str | None = None

    def see(self, session: Session) -> Sequence[AnyMessage]:
        """The thread from this seat."""
        seen = list(_see_as(self.agent, session.transcript))
        if self._spoke_last(seen):
            seen.append(_GO_ON)
        if self.window is None or len(seen) <= self.window + 1:
            return seen
        first = len(seen) - self.window
        while first > 0 and seen[first].role == "tool":
            first -= 1  # Results come with the calls that they answer.
        # A topic among the last is seen anyway; but they may begin with a reply, as no prompt can.
        topic = next((one for one in seen[:first] if one.id == self.topic), seen[0])
        return [topic, *seen[max(first, 1) :]]

    def _spoke_last(self, seen: Sequence[AnyMessage]) -> bool:
        """Whether nobody was heard since this agent's last turn: then it must be asked to go on."""
        if not seen or seen[-1].role not in ("assistant", "tool"):
            return False
        reply = next((one for one in reversed(seen) if one.role == "assistant"), None)
        return not isinstance(reply, Message) or mark_of(reply) != self.metadata[MARK]

    def instruct(self, session: Session, instructions: str) -> str:
        """The running summary comes with the instructions."""
        told = f"You are {self.agent}. What others say begins with their name in brackets."
        summary = f"The discussion so far, in short: {session.summary}" if session.summary else ""
        return "\n\n".join(part for part in (instructions, told, summary) if part)


def _see_as(name: str, transcript: Iterable[AnyMessage]) -> Iterable[AnyMessage]:
    author: str | None = None
    for message in transcript:
        if not isinstance(message, Message):
            yield message
        elif message.role == "assistant":
            author = message.agent
            if author == name:
                yield message
            elif said := _words_of(message):
                yield Message(role="user", blocks=(Text(f"[{author}] {said}"),), id=message.id, at=message.at)
        elif message.role == "tool" or is_nudge(message):
            if author == name:
                yield message
        else:
            yield message


def _words_of(message: Message) -> str:
    """What the others hear of a reply. A summary reaches them with their instructions."""
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
    """What a message of a thread says of its author."""
    found = message.metadata.get(MARK)
    return found if isinstance(found, dict) else {}


def find_final(message: Message) -> dict[str, Json] | None:
    """What a reply gave as its output, if that was not plain text."""
    for call in message.tool_calls:
        if call.name == FINAL and isinstance(call.args, dict):
            return call.args
    return None

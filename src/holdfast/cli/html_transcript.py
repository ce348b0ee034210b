"""Messages as HTML: results inside their calls, reasoning folded. What was said is text, never markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ..content.lazy import peek_at
from ..content.message_blocks import list_blocks
from ..drawing.markup import Html, el, join
from ..formatting import count, cut_text, indented, short_args, shorten, utc_text
from ..limits import PAGE_MESSAGES_MAX, PAGE_TEXT_CHARS, PAGE_TRANSCRIPT_CHARS
from ..messages import AnyMessage, Block, ForeignMessage, Media, Reasoning, Text, ToolCall, ToolResult
from .entry_text import describe_media, message_text, result_text

_FIRST_MESSAGES: Final = 20
_MESSAGES_OPEN: Final = 50
"""More messages are folded, so that the page begins short."""
_CALL_CHARS: Final = 300


class MediaPlace(NamedTuple):
    """Where media are in a transcript: in which message, and the how many-th media of it they are."""

    message: int
    number: int


ShowMedia: TypeAlias = Callable[[Media, MediaPlace], Html | None]
"""Shows media; None for those that can only be described."""


class PlacedMessage(NamedTuple):
    """A message, its place in the transcript, and its entry if it has one of its own."""

    place: int
    message: AnyMessage
    seq: int | None = None


class _PlacedResult(NamedTuple):
    """A result of a call, and where its media are."""

    result: ToolResult
    place: int
    first_media: int


def list_media(message: AnyMessage) -> list[Media]:
    """The media of a message, those in results included, in the order of `MediaPlace.number`."""
    return [media for block in list_blocks(message) for media in _media_of(block)]


def _media_of(block: Block) -> list[Media]:
    if isinstance(block, Media):
        return [block]
    if isinstance(block, ToolResult) and not isinstance(block.content, str):
        return [one for one in block.content if isinstance(one, Media)]
    return []


# -- a whole transcript, cut ----------------------------------------------------------------------------


def draw_transcript(session: str, messages: Sequence[AnyMessage], seqs: Sequence[int]) -> Iterator[Html]:
    """The messages; `seqs` are their entries, if they have entries of their own."""
    total = len(messages)
    if not total:
        return
    yield el("h2", "Transcript")
    shown, room = _choose_messages(messages, total), PAGE_TRANSCRIPT_CHARS
    gone = total - len(shown)
    if gone:
        said = f"{count(gone, 'message')} in the middle left out; `holdfast export {session}` has all."
        yield el("p", said, class_="note")
    drawn: list[Html] = []
    before = -1
    placed = [PlacedMessage(place, messages[place], seqs[place] if seqs else None) for place in shown]
    for place, block in draw_messages(placed):
        if place != before + 1:
            drawn.append(el("p", f"… {count(place - before - 1, 'message')} left out …", class_="note"))
        before = place
        room -= len(block)
        if block:
            drawn.append(block)
        if room < 0:
            drawn.append(el("p", "The rest is too long for a page.", class_="note"))
            break
    is_open = "" if total <= _MESSAGES_OPEN else None
    yield el("details", el("summary", count(total, "message")), *drawn, class_="box", open=is_open)


def _choose_messages(messages: Sequence[AnyMessage], total: int) -> list[int]:
    """The places of the messages that are shown: the first ones, and as many of the last as fit."""
    shown = list(range(min(_FIRST_MESSAGES, total)))
    room = PAGE_TRANSCRIPT_CHARS // 2
    last: list[int] = []
    for place in range(total - 1, len(shown) - 1, -1):
        room -= min(_count_chars(messages[place]), 2 * PAGE_TEXT_CHARS)
        if room < 0 or len(last) >= PAGE_MESSAGES_MAX - _FIRST_MESSAGES:
            break
        last.append(place)
    return shown + last[::-1]


def _count_chars(message: AnyMessage) -> int:
    return sum(len(said) for said in _list_texts(message)) + 200


def _list_texts(message: AnyMessage) -> Iterator[str]:
    for block in list_blocks(message):
        if isinstance(block, Text | Reasoning):
            yield block.text
        elif isinstance(block, ToolCall):
            yield indented(block.args)
        elif isinstance(block, ToolResult):
            yield result_text(block.content)


# -- messages -------------------------------------------------------------------------------------------


def draw_messages(
    shown: Sequence[PlacedMessage], show_media: ShowMedia | None = None
) -> Iterator[tuple[int, Html]]:
    """Each of the messages, with its place. The results of calls are in the calls; a message that holds
    nothing else is empty."""
    sheet = _MessageSheet(shown, show_media)
    for one in shown:
        yield one.place, sheet.draw(one)


class _MessageSheet:
    """Messages that are drawn together: a result is drawn with its call, if both are among them."""

    def __init__(self, shown: Sequence[PlacedMessage], show_media: ShowMedia | None) -> None:
        self._show_media = show_media
        self._first, self._folded = shown[0].place if shown else 0, 0
        self._results: dict[str, list[_PlacedResult]] = {}
        """By the id of their call, in order: ids may be used again."""
        for one in shown:
            media = 0
            for block in list_blocks(one.message):
                if isinstance(block, ToolResult):
                    found = _PlacedResult(block, one.place, media)
                    self._results.setdefault(block.call_id, []).append(found)
                media += len(_media_of(block))

    def draw(self, one: PlacedMessage) -> Html:
        """A message."""
        message = one.message
        blocks = list_blocks(message)
        drawn: list[Html] = []
        media = 0
        for block in blocks:
            if (shown := self._draw_block(block, MediaPlace(one.place, media))) is not None:
                drawn.append(shown)
            media += len(_media_of(block))
        if not blocks:
            said = message_text(message)
            if isinstance(message, ForeignMessage) and not said:
                said = indented(peek_at(message))
            drawn = [el("div", cut_text(said), class_="said")]
        if not drawn and not any(isinstance(block, ToolCall) for block in blocks):
            return join()
        at = el("time", utc_text(message.at)) if message.at is not None else None
        who = getattr(message, "agent", None) or message.role
        return el(
            "article",
            el("h3", who, at),
            *drawn,
            id=f"entry-{one.seq}" if one.seq is not None and message.role != "tool" else None,
            class_=f"message {message.role}",
        )

    def _draw_block(self, block: Block, place: MediaPlace) -> Html | None:
        match block:
            case Text():
                return el("div", cut_text(block.text), class_="said") if block.text else None
            case Reasoning():
                summary = el("summary", "reasoning", class_="dim")
                said = el("div", cut_text(block.text), class_="said reasoning")
                return el("details", summary, said, id=self._name("reasoning"))
            case ToolCall():
                answered = self._results.get(block.id) or []
                return self._draw_call(block, answered.pop(0) if answered else None)
            case ToolResult():
                left = self._results.get(block.call_id) or []
                found = next((one for one in left if one.result is block), None)
                if found is None:
                    return None  # It is shown with its call.
                left.remove(found)
                word = "error" if block.is_error else "result"
                return join(el("div", f"{word} of {block.call_id}", class_="dim"), *self._draw_result(found))
            case Media():
                return self._draw_media(block, place)
            case _:
                return el("pre", cut_text(indented(msgspec.to_builtins(block))))

    def _draw_media(self, media: Media, place: MediaPlace) -> Html:
        described = el("div", describe_media(media), class_="dim")
        shown = None if self._show_media is None else self._show_media(media, place)
        return described if shown is None else el("figure", shown, described)

    def _draw_result(self, one: _PlacedResult) -> list[Html]:
        """What a call returned, and the media in it."""
        found = [el("pre", cut_text(result_text(one.result.content)))]
        if self._show_media is not None:
            for number, media in enumerate(_media_of(one.result), one.first_media):
                shown = self._show_media(media, MediaPlace(one.place, number))
                found += [el("figure", shown)] if shown is not None else []
        return found

    def _draw_call(self, call: ToolCall, answer: _PlacedResult | None) -> Html:
        result = None if answer is None else answer.result
        head = el(
            "summary",
            el("span", shorten(f"{call.name}({short_args(call.args)})", _CALL_CHARS), class_="mono"),
            el("span", "  failed", class_="bad") if result is not None and result.is_error else None,
        )
        parts = [el("pre", cut_text(indented(call.args)))]
        if answer is None or result is None:
            parts.append(el("div", "no result", class_="dim"))
        else:
            label = "error" if result.is_error else "result"
            again = f", repeats the outcome of {result.replay_of}" if result.replay_of else ""
            parts += [el("div", f"{label}{again}", class_="dim"), *self._draw_result(answer)]
        return el("details", head, *parts, id=self._name("call"), class_="call")

    def _name(self, kind: str) -> str:
        """An id for something that is folded: a page that is drawn anew leaves it open."""
        self._folded += 1
        return f"{kind}-{self._first}-{self._folded}"

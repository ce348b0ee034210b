"""The transcript as a client takes it: what was given in its format as it was, the rest converted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ..errors import BadInput
from ..messages import OWN, AnyMessage, ForeignMessage, Json, Message, list_formats, responses_items
from ..suggestions import closest
from . import anthropic, openai_chat, openai_responses
from .own_blocks import to_own_message

MessageFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic", "pydantic-ai"]
"""Formats that messages of every other format can be converted to."""


class Converter(NamedTuple):
    """Makes messages of a format."""

    give: Callable[[Json], Iterable[Json]]
    """What the client takes for a message that was given in this format."""
    make: Callable[[Sequence[Message]], Iterable[Json]]
    """What it takes for messages of ours that follow each other."""
    has_system: bool = True
    """Whether a system message may begin the list. Else the client takes it apart."""


_CONVERTERS: Final[dict[str, Converter]] = {
    "openai": Converter(lambda data: [data], openai_chat.make),
    "openai-responses": Converter(responses_items, openai_responses.make),
    "anthropic": Converter(lambda data: [data], anthropic.make, has_system=False),
}


def check_format(format: object) -> str:
    """The name of a format that a transcript can be given in, or `BadInput`."""
    known = sorted({*_CONVERTERS, *list_formats()})
    if format in known:
        return str(format)
    if format == OWN:
        raise BadInput("session.transcript has the messages in holdfast's own format")
    near = closest(str(format), known)
    hint = f"; did you mean {near!r}? There are" if near else "; there are"
    raise BadInput(f"unknown message format {format!r}{hint} {', '.join(known)}")


def convert(messages: Iterable[AnyMessage], format: str) -> list[Any]:
    """The messages in this format. Media must have been read."""
    if format == "pydantic-ai":
        from .pydantic_ai import to_pydantic_ai  # Only here: it needs the library.

        return list(to_pydantic_ai(messages))
    converter = _CONVERTERS.get(format)
    found: list[Json] = []
    rest = list(messages)
    if converter is not None and not converter.has_system:
        rest = rest[count_opening(rest) :]
    for message in _grouped(rest, format):
        if isinstance(message, ForeignMessage):
            found += [message.data] if converter is None else converter.give(message.data)
        elif converter is None:
            raise BadInput(
                f"a message of the format {message[0].format!r} cannot be converted to {format!r}; "
                f"{', '.join(_CONVERTERS)} and pydantic-ai can be converted to"
            )
        else:
            found += converter.make([to_own_message(one) for one in message])
    return found


def _grouped(messages: Sequence[AnyMessage], format: str) -> Iterator[ForeignMessage | list[AnyMessage]]:
    """Each message that was given in the format, and those between them together."""
    group: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ForeignMessage) and message.format == format:
            if group:
                yield group
                group = []
            yield message
        else:
            group.append(message)
    if group:
        yield group


def count_opening(messages: Sequence[AnyMessage]) -> int:
    """The number of system messages that the transcript begins with."""
    return next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))

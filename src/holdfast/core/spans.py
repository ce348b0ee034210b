"""Sets of entries, as spans of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .entries import Span


class Spans:
    """A set of entries as spans, growing at its end."""

    __slots__ = ("_closed", "_first", "_last")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._closed = list(spans)
        self._first, self._last = self._closed.pop() if self._closed else (1, 0)

    def extend_to(self, seq: int) -> None:
        if seq != self._last + 1:
            self._closed = list(self)
            self._first = seq
        self._last = seq

    def __iter__(self) -> Iterator[Span]:
        yield from self._closed
        if self._first <= self._last:
            yield Span(self._first, self._last)

    def covers(self, span: Span) -> bool:
        return any(seen.first <= span.first and span.last <= seen.last for seen in self)

    def joined_with(self, other: Spans) -> Spans:
        joined: list[Span] = []
        for span in sorted([*self, *other]):
            if joined and span.first <= joined[-1].last + 1:
                span = Span(joined[-1].first, max(joined.pop().last, span.last))
            joined.append(span)
        return Spans(joined)

"""How a list or dict was last written, and whether what it holds has changed since."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter, is_
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

_get_dict = attrgetter("__dict__")
CONTAINERS = frozenset({list, dict, tuple, _DeltaSnapshot})
"""Types that are taken apart."""
_HONEST = frozenset({object.__eq__, BaseModel.__eq__})
"""Methods whose comparison is known: class and fields."""
_FIXED = frozenset({str, int, float, bool, type(None), bytes, complex, frozenset, range})
"""Types whose objects cannot change."""
_UNMARKED = _FIXED | CONTAINERS


class LastWritten:
    """How a list or dict was last written: what was in it, as what, and where."""

    def __init__(self, keys: list[str] | None) -> None:
        self.keys = keys
        self.items: list[Any] = []
        self.marks: list[Any] = []
        self.nodes: list[bytes] = []
        self.kids: dict[int, LastWritten] = {}
        """Lists and dicts inside, by place."""
        self.plain = True
        """All items have a `__dict__`, and none is a container: they can be compared all at once."""
        self.honest = True
        """Two of them that call themselves equal are of one class and have equal fields."""
        self._exact: list[tuple[int, str, Any]] = []
        """Fields of theirs (place, name, object) for which being equal is not enough …"""
        self._exact_count = 0
        """… of as many of the first items."""
        self.numbers = False
        """A list of numbers: its items were written together, and `marks` and `nodes` are empty."""
        self.number: int | None = None
        self.ops = 0
        self.node = b""

    def add(self, item: Any, mark: Any, node: bytes, kid: LastWritten | None) -> None:
        if kid is not None:
            self.kids[len(self.items)] = kid
        self.plain = self.plain and mark.__class__ is dict
        if self.plain:
            self.honest = self.honest and item.__class__.__eq__ in _HONEST
        self.items.append(item)
        self.marks.append(mark)
        self.nodes.append(node)

    @property
    def is_flat(self) -> bool:
        """Whether it is a list of which each item can be made again by itself."""
        return self.plain and self.keys is None and self.number is not None and not self.numbers

    def fill(self, items: list[Any], nodes: list[bytes]) -> None:
        """All that is in it at once: what `add` does for one after another."""
        self.items, self.nodes = items, nodes
        self.marks = [*map(mark_of, items)]
        self.plain = all(mark.__class__ is dict for mark in self.marks)
        if self.plain:
            classes: set[Any] = set(map(type, items))
            self.honest = all(cls.__eq__ in _HONEST for cls in classes)

    def begins(self, value: Sequence[Any]) -> bool:
        """Whether a list begins with all of these items, none of them changed."""
        count = len(self.items)
        if not self.plain or len(value) < count:
            return False
        start = value[:count]
        try:
            # Comparing lists is quicker, and looks at what is the same before it asks what is equal.
            if not (start == self.items if self.honest else all(map(is_, start, self.items))):
                return False
            # One comparison for all: item by item it would cost more than the rest of a `put`. It takes equal
            # for the same, so it is not enough for objects that may call themselves equal and are not.
            fields = list(map(_get_dict, start))
            exact = all(fields[place].get(name) is one for place, name, one in self._find_exact())
            if not exact or fields != self.marks:
                return False
            if count and start[0] is not self.items[0]:
                # Equal, not the same: the thread was read meanwhile. These will come again, and
                # comparing all that they hold takes ten times as long.
                self.items, self.marks = list(start), [dict(vars(one)) for one in start]
            return True
        except Exception:  # What fields hold may refuse to be compared.
            return False

    def _find_exact(self) -> list[tuple[int, str, Any]]:
        for place in range(self._exact_count, len(self.marks)):
            self._exact += _find_exact(place, self.marks[place])
        self._exact_count = len(self.marks)
        return self._exact

    def find(self, place: int, item: Any) -> bytes | None:
        """How the item in this place was written, if it is still the same."""
        if place < len(self.items) and self.items[place] is item and _is_same(item, self.marks[place]):
            return self.nodes[place]
        return None


def mark_of(item: Any) -> Any:
    """What shows later whether the object was changed: what its fields hold, each as an object."""
    if item.__class__ in _UNMARKED:
        return None
    fields = getattr(item, "__dict__", None)
    if fields is not None:
        return dict(fields)
    if isinstance(item, set | deque):
        return tuple(item)
    return tuple(getattr(item, name, None) for name in _slots(item.__class__))


def _find_exact(place: int, mark: dict[str, Any]) -> list[tuple[int, str, Any]]:
    """The fields of an item that something else can be equal to which is written in another way."""
    return [
        (place, name, one)
        for name, one in mark.items()
        if one is not None and one.__class__ is not str and not (one.__class__ in CONTAINERS and not one)
    ]


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        declared = base.__dict__.get("__slots__", ())
        yield from (declared,) if isinstance(declared, str) else declared


def _is_same(item: Any, mark: Any) -> bool:
    if mark is None:
        return True
    now = mark_of(item)
    if now.__class__ is not mark.__class__ or len(now) != len(mark):
        return False
    if isinstance(now, dict):
        return all(map(is_, now, mark)) and all(map(is_, now.values(), mark.values()))
    return all(map(is_, now, mark))

"""Gate 1: an unknown tool, and which one was probably meant."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

import pytest

from holdfast import Registry, tool
from holdfast.suggestions import closest

VERBS = [
    "get",
    "set",
    "list",
    "find",
    "search",
    "read",
    "write",
    "delete",
    "create",
    "update",
    "send",
    "fetch",
    "open",
    "close",
    "move",
    "copy",
]
NOUNS = [
    "file",
    "files",
    "user",
    "users",
    "order",
    "invoice",
    "email",
    "message",
    "weather",
    "calendar",
    "event",
    "page",
    "table",
    "row",
    "ticket",
    "customer",
    "payment",
    "image",
    "document",
    "branch",
    "commit",
    "issue",
    "report",
    "account",
]


def registry_of(*names: str) -> Registry:
    """Tools with these names."""
    return Registry([tool(side_effects=(), name=name)(lambda: None) for name in names])


async def test_the_worked_example() -> None:
    """Word for word."""
    result = await registry_of("search", "calc").dispatch("calculator", {"expression": "1+1"})
    assert result.content == "unknown tool: 'calculator'. Did you mean 'calc'? Available: ['calc', 'search']"
    assert result.status == "refused"


@pytest.mark.parametrize("name", ["frobnicate", "xyz", "", "🦆", "a" * 500, "send_money_to_the_moon"])
async def test_an_unrelated_name_gets_no_suggestion(name: str) -> None:
    """A wrong hint is worse than none."""
    result = await registry_of("search", "calc", "read_file").dispatch(name, {})
    assert result.content == f"unknown tool: {name!r}. Available: ['calc', 'read_file', 'search']"


async def test_without_any_tool_there_is_nothing_to_suggest() -> None:
    """And the list is empty."""
    assert (await Registry().dispatch("calc", {})).content == "unknown tool: 'calc'. Available: []"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("readFile", "read_file"),
        ("READ-FILE", "read_file"),
        ("file_read", "read_file"),
        ("functions.read_file", "read_file"),
        ("read_fil", "read_file"),
        ("send_e_mail", "send_email"),
        ("web_search", "search"),
    ],
)
def test_what_models_really_write_is_understood(given: str, meant: str) -> None:
    """Another case, another order, a prefix, a word too many."""
    assert closest(given, ["read_file", "send_email", "search", "list_users"]) == meant


def insert(name: str, chance: random.Random) -> str:
    """One letter too many."""
    place = chance.randint(0, len(name))
    return name[:place] + chance.choice(string.ascii_lowercase) + name[place:]


def delete(name: str, chance: random.Random) -> str:
    """One letter too few."""
    place = chance.randrange(len(name))
    return name[:place] + name[place + 1 :]


def swap(name: str, chance: random.Random) -> str:
    """Two letters in the wrong order."""
    place = chance.randrange(len(name) - 1)
    return name[:place] + name[place + 1] + name[place] + name[place + 2 :]


def replace(name: str, chance: random.Random) -> str:
    """One wrong letter."""
    place = chance.randrange(len(name))
    return name[:place] + chance.choice(string.ascii_lowercase) + name[place + 1 :]


def recase(name: str, chance: random.Random) -> str:
    """Another way to write several words."""
    words = name.split("_")
    camel = words[0] + "".join(word.title() for word in words[1:])
    return chance.choice([camel, name.upper(), "-".join(words), "".join(words), name.title()])


def truncate(name: str, chance: random.Random) -> str:
    """The end is missing."""
    return name[: max(3, len(name) - chance.randint(1, 3))]


def extend(name: str, chance: random.Random) -> str:
    """A word too many, in front or behind."""
    word = chance.choice(["tool", "the", "now", "my", "api", "v2"])
    return chance.choice([f"{name}_{word}", f"{word}_{name}"])


MISSPELLINGS: list[Callable[[str, random.Random], str]] = [
    insert,
    delete,
    swap,
    replace,
    recase,
    truncate,
    extend,
]


@pytest.mark.parametrize("misspell", MISSPELLINGS, ids=lambda one: one.__name__)
def test_the_right_name_comes_first_for_random_misspellings(misspell: Callable[..., str]) -> None:
    """In at least 95 of 100 cases of each sort, among a dozen tools that resemble one another."""
    chance = random.Random(f"names {misspell.__name__}")
    right = total = 0
    wrong: list[tuple[str, str, str | None]] = []
    while total < 500:
        names = sorted({f"{chance.choice(VERBS)}_{chance.choice(NOUNS)}" for _ in range(12)})
        meant = chance.choice(names)
        given = misspell(meant, chance)
        # What happens to be another tool's name, or as near to it as to this one, has no right answer.
        if given in names or any(given in name or name in given for name in names if name != meant):
            continue
        found = closest(given, names)
        total += 1
        right += found == meant
        if found != meant:
            wrong.append((given, meant, found))
    assert right >= 475, wrong[:20]


def test_random_unrelated_names_get_no_suggestion() -> None:
    """But for one in a hundred, which resembles some tool by accident."""
    chance = random.Random("unrelated")
    words = ["zebra", "quantum", "violin", "orbit", "plumber", "helmet", "mosaic", "tundra", "falcon"]
    suggested = 0
    for _ in range(500):
        names = [f"{chance.choice(VERBS)}_{chance.choice(NOUNS)}" for _ in range(12)]
        suggested += closest("_".join(chance.sample(words, 2)), names) is not None
    assert suggested <= 5

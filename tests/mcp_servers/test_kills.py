"""Client, proxy and server are killed around an effect, and the client is started anew.

Behind the proxy, a repository, a directory and a memory show each effect once, or the call is in doubt. The
same client without the proxy shows it twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.cli_processes import call
from tests.crash.fork_server import Warm, poll

from . import killed_client
from .killed_client import results
from .player import Player
from .scripts import make_repository, run_git
from .servers import behind_proxy, from_npm, from_pypi

CHANGE = "add the line"
TAP, WATCHED = (Path(__file__).with_name(name) for name in ("tap.py", "watched_proxy.py"))


class World(NamedTuple):
    """A server, one effect of it, and how to see how often that happened."""

    name: str
    command: Callable[[Path], list[str]]
    prepare: Callable[[Path], None]
    """Before each start of the client: work goes on."""
    tool: str
    arguments: Callable[[Path], dict[str, Any]]
    count: Callable[[Path], int]
    rules: str
    """A configuration of the proxy with which it finds out by itself what happened."""


def _stage_more(place: Path) -> None:
    repository = place / "repository"
    if not repository.exists():
        make_repository(place)
    with open(repository / "b.txt", "a") as file:
        file.write("more\n")
    run_git(repository, "add", ".")


def _count_commits(place: Path) -> int:
    return run_git(place / "repository", "log", "--format=%s").splitlines().count(CHANGE)


def _make_file(place: Path) -> None:
    (place / "files").mkdir(exist_ok=True)
    file = place / "files" / "a.txt"
    if not file.exists():
        file.write_text("the end\n")


def _count_lines(place: Path) -> int:
    return (place / "files" / "a.txt").read_text().splitlines().count(CHANGE)


def _make_nothing(place: Path) -> None:
    pass


def _count_inserts(place: Path) -> int:
    """The server drops what it has already, so the file alone would not tell."""
    memory = place / "memory.jsonl"
    stored = CHANGE in memory.read_text() if memory.exists() else False
    return max(count_calls(place, "create_entities") if stored else 0, int(stored))


def count_calls(place: Path, tool: str) -> int:
    """How often the server has seen a call of the tool."""
    calls = place / "calls"
    return calls.read_text().split().count(tool) if calls.exists() else 0


WORLDS = (
    World(
        "git",
        lambda place: from_pypi("git"),
        _stage_more,
        "git_commit",
        lambda place: {"repo_path": str(place / "repository"), "message": CHANGE},
        _count_commits,
        """
        [tools.git_commit.verify]
        tool = "git_log"
        arguments = { repo_path = "{args.repo_path}", max_count = 20 }
        landed_if = { text_contains = "{args.message}" }
        """,
    ),
    World(
        "filesystem",
        lambda place: from_npm("filesystem", str(place / "files")),
        _make_file,
        "edit_file",
        lambda place: {
            "path": str(place / "files" / "a.txt"),
            "edits": [{"oldText": "the end", "newText": f"{CHANGE}\nthe end"}],
        },
        _count_lines,
        f"""
        [tools.edit_file.verify]
        tool = "read_text_file"
        arguments = {{ path = "{{args.path}}" }}
        landed_if = {{ text_contains = "{CHANGE}" }}
        """,
    ),
    World(
        "memory",
        lambda place: ["env", f"MEMORY_FILE_PATH={place}/memory.jsonl", *from_npm("memory")],
        _make_nothing,
        "create_entities",
        lambda place: {"entities": [{"name": CHANGE, "entityType": "line", "observations": []}]},
        _count_inserts,
        f"""
        [tools.create_entities.verify]
        tool = "open_nodes"
        arguments = {{ names = ["{CHANGE}"] }}
        landed_if = {{ pointer = "/entities/0/name", equals = "{CHANGE}" }}
        """,
    ),
)
GIT, FILESYSTEM, MEMORY = WORLDS
KINDS = ("commit", "claim", "server", "client")
WHOM = ("client", "proxy", "server", "client proxy server")
POINTS = tuple((when, who) for when in ("before", "after") for who in WHOM)


def each_but(*short: World) -> pytest.MarkDecorator:
    """Every world; those that are not `short` in the long suite."""
    cases = [pytest.param(one, id=one.name, marks=() if one in short else pytest.mark.long) for one in WORLDS]
    return pytest.mark.parametrize("world", cases)


def each_point(*short: tuple[World, str, str]) -> pytest.MarkDecorator:
    """Every world and point of a kill; those that are not `short` in the long suite."""
    cases = [
        pytest.param(
            *(one, when, who),
            id="-".join([one.name, when, *who.split()]),
            marks=() if (one, when, who) in short else pytest.mark.long,
        )
        for one in WORLDS
        for when, who in POINTS
    ]
    return pytest.mark.parametrize(("world", "when", "who"), cases)


class Shop:
    """A place in which a world is, and the client's way to it."""

    def __init__(
        self,
        world: World,
        place: Path,
        warm: Warm,
        *,
        proxied: bool = True,
        watched: bool = False,
        rules: str = "",
    ) -> None:
        self.world, self.place, self._warm = world, place, warm
        tapped = [sys.executable, "-S", "-E", str(TAP), str(place), *world.command(place)]
        options: list[str] = []
        if rules:
            (place / "rules.toml").write_text(rules)
            options = ["--config", str(place / "rules.toml")]
        self.store = place / "ledger.db"
        self.command = behind_proxy(world.name, tapped, self.store, *options) if proxied else tapped
        if watched:
            start = self.command.index("mcp")
            self.command = [sys.executable, str(WATCHED), str(place), world.tool, *self.command[start:]]
        self.calls = [(world.tool, world.arguments(place))]
        world.prepare(place)

    def kill_at(self, when: str, who: str) -> None:
        """Run the client until the kill has happened, and the processes are gone."""
        (self.place / "do").write_text(f"{self.world.tool} {when} {who}")
        with self._warm.child(killed_client.work, str(self.place), self.command, self.calls) as child:
            # A proxy whose server dies tells its client what is known, before it ends, too.
            assert child.outcome() in ((None,) if "client" in who else ("lost", "done"))
        assert not (self.place / "do").exists(), "nothing was killed"

    def kill_at_boundary(self, number: int, who: str, *, stopped: bool = False) -> str:
        """Run the client behind a watched proxy until the kill has happened there; the boundary's name. With
        `stopped`, the client has read nothing since the boundary before."""
        (self.place / "at").write_text(f"{number} {who}" + stopped * " stopped")
        with self._warm.child(killed_client.work, str(self.place), self.command, self.calls) as child:
            assert child.outcome() in ((None,) if "client" in who else ("lost", "done"))
        assert not (self.place / "at").exists(), "nothing was killed"
        return self.list_passed()[number]

    def list_passed(self) -> list[str]:
        """The boundaries that a watched proxy has passed."""
        return (self.place / "passed").read_text().splitlines()

    def go_on(self) -> Any:
        """Start the client anew, until it is done; its result of the call."""
        self.world.prepare(self.place)
        assert self._warm.call(killed_client.work, str(self.place), self.command, self.calls) == "done"
        return results(self.place)[-1]

    def forget(self) -> None:
        """Let the client forget its results, so that it makes the call again."""
        (self.place / "results").unlink()

    def forget_vain_calls(self) -> None:
        """Calls that the server has seen, and died before it did anything, count for nothing."""
        if not self.count:
            (self.place / "calls").unlink(missing_ok=True)

    def list_pending(self) -> list[Any]:
        """What waits for a person."""
        done = call(self.place, f"pending --store sqlite:{self.store} --json")
        assert done.code == 0, done.err
        return list(done.json["pending"])

    def settle(self) -> None:
        """Do what a person does: look, and give the command that `pending` names."""
        (doubt,) = self.list_pending()
        command = doubt["commands"]["landed" if self.count else "not_landed"]
        done = call(self.place, command.removeprefix("holdfast ").replace("'…'", "'it is there'"))
        assert done.code == 0, done.err

    @property
    def count(self) -> int:
        """How often the effect happened."""
        return self.world.count(self.place)


def is_doubt_text(said: str) -> bool:
    """Whether this says that a call is in doubt."""
    return "IN DOUBT" in said or "NOT RUN" in said


def is_doubt(result: Any) -> bool:
    """Whether the proxy says that it does not know."""
    said = result["content"][0]["text"]
    in_words = is_doubt_text(said)
    assert in_words == (result.get("_meta", {}).get("holdfast/status") == "in_doubt")
    assert result.get("isError") is True or not in_words
    return in_words


@each_point((GIT, "after", "client"), (MEMORY, "after", "server"))
def test_an_effect_happens_once_or_is_in_doubt(
    world: World, when: str, who: str, warm: Warm, tmp_path: Path
) -> None:
    """Whoever is killed. What is in doubt is settled by a person, and then the client gets its result."""
    shop = Shop(world, tmp_path, warm)
    shop.kill_at(when, who)
    result = shop.go_on()
    assert shop.count <= 1
    if not is_doubt(result):
        assert shop.count == 1
        assert result.get("isError") is not True
        assert shop.list_pending() == []
        return
    shop.settle()
    shop.forget_vain_calls()
    shop.forget()
    assert not is_doubt(shop.go_on())
    assert shop.count == 1
    assert shop.list_pending() == []


@each_point((FILESYSTEM, "after", "proxy"))
def test_a_proxy_that_may_ask_the_server_settles_it_by_itself(
    world: World, when: str, who: str, warm: Warm, tmp_path: Path
) -> None:
    """The effect happens once, and no person is needed."""
    shop = Shop(world, tmp_path, warm, rules=world.rules)
    shop.kill_at(when, who)
    result = shop.go_on()
    if who == "server" and is_doubt(result):
        shop.forget()  # It was told by the proxy of the dead server, which could not ask any more.
        result = shop.go_on()
    assert not is_doubt(result)
    assert shop.count == 1
    assert shop.list_pending() == []


WORLDS_IN_FULL = pytest.mark.parametrize("world", [pytest.param(one, id=one.name) for one in WORLDS])


@pytest.mark.long
@pytest.mark.timeout(1200)
@WORLDS_IN_FULL
@pytest.mark.parametrize("who", ["client", "proxy", "server"])
def test_a_kill_at_every_boundary_leaves_an_effect_once_or_in_doubt(
    world: World, who: str, warm: Warm, tmp_path: Path
) -> None:
    """Before and after each thing that the proxy hands to the disk, to the server and to the client, with
    each of the three as the victim. There is one hole, which the documentation names: a client that was given
    the answer, and has not kept it, makes a new call."""
    probe = tmp_path / "probe"
    probe.mkdir()
    shop = Shop(world, probe, warm, watched=True)
    shop.go_on()
    passed = shop.list_passed()
    boundaries = {f"{when} {what}" for when in ("before", "after") for what in KINDS}
    assert boundaries == set(passed)
    # When it was delivered, the claim is given back. What follows is the end of the connection.
    count = passed.index("after claim", passed.index("after client")) + 1
    for number in range(count):
        place = tmp_path / str(number)
        place.mkdir()
        shop = Shop(world, place, warm, watched=True)
        name = f"{number} {shop.kill_at_boundary(number, who)}"
        is_lost = "after client" in shop.list_passed() and not results(place)
        result = shop.go_on()
        if result.get("isError") and not is_doubt(result):
            shop.forget()  # The client was told that nothing was done.
            shop.forget_vain_calls()
            result = shop.go_on()
        if is_doubt(result):
            assert shop.count <= 1, name
            shop.settle()
            shop.forget_vain_calls()
            shop.forget()
            assert not is_doubt(shop.go_on()), name
        assert shop.count == 1 or (shop.count == 2 and is_lost), name
        assert shop.list_pending() == [], name


@pytest.mark.parametrize(
    ("once", "count"), [(True, 1), pytest.param(False, 2, marks=pytest.mark.long)], ids=["once", "plain"]
)
def test_a_client_that_dies_with_the_answer_makes_a_new_call(
    once: bool, count: int, warm: Warm, tmp_path: Path
) -> None:
    """Nothing tells that it has not kept it: that is the documented hole. With `once`, there is none."""
    rules = f"[tools.{FILESYSTEM.tool}]\nonce = true\n" if once else ""
    probe, place = tmp_path / "probe", tmp_path / "place"
    for one in (probe, place):
        one.mkdir()
    shop = Shop(FILESYSTEM, probe, warm, watched=True, rules=rules)
    shop.go_on()
    delivered = shop.list_passed().index("after client")
    shop = Shop(FILESYSTEM, place, warm, watched=True, rules=rules)
    shop.kill_at_boundary(delivered, "client", stopped=True)
    assert results(place) == []
    assert not is_doubt(shop.go_on())
    assert shop.count == count


@each_but(GIT)
@pytest.mark.parametrize("who", ["client", pytest.param("server", marks=pytest.mark.long)])
def test_without_the_proxy_it_happens_twice(world: World, who: str, warm: Warm, tmp_path: Path) -> None:
    """The same client, killed at the same point: so the tests above can fail."""
    shop = Shop(world, tmp_path, warm, proxied=False)
    shop.kill_at("after", who)
    assert shop.count == 1
    shop.go_on()
    assert shop.count == 2


@each_but(FILESYSTEM)
@pytest.mark.parametrize("once", [False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "once"])
def test_of_two_clients_at_once_one_makes_the_call(
    world: World, once: bool, warm: Warm, tmp_path: Path
) -> None:
    """The other waits for its outcome, and is given the same: with `once`, whenever it asks; else because it
    has asked before that was there."""
    shop = Shop(world, tmp_path, warm, rules=f"[tools.{world.tool}]\nonce = {str(once).lower()}\n")
    (tmp_path / "do").write_text(f"{world.tool} after hold")
    arguments: Any = (str(tmp_path), shop.command, shop.calls)
    with warm.child(killed_client.work, *arguments, who="-1") as first:
        poll(lambda: (tmp_path / "held").exists(), "the first call to be under way")
        with warm.child(killed_client.work, *arguments, who="-2") as second:
            assert not second.has_ended(2.0)
            assert count_calls(tmp_path, world.tool) == 1
            (tmp_path / "go").touch()
            assert first.result() == "done"
            assert second.result() == "done"
    assert shop.count == 1
    (one,), (other,) = results(tmp_path, "-1"), results(tmp_path, "-2")
    assert one["content"] == other["content"]


@each_but(MEMORY)
def test_the_second_of_two_clients_is_told_if_the_first_one_dies(
    world: World, warm: Warm, tmp_path: Path
) -> None:
    """It does not make the call itself."""
    shop = Shop(world, tmp_path, warm)
    (tmp_path / "do").write_text(f"{world.tool} after hold client proxy server")
    arguments: Any = (str(tmp_path), shop.command, shop.calls)
    with warm.child(killed_client.work, *arguments, who="-1") as first:
        poll(lambda: (tmp_path / "held").exists(), "the first call to be under way")
        with warm.child(killed_client.work, *arguments, who="-2") as second:
            (tmp_path / "go").touch()
            assert first.outcome() is None
            assert second.result() == "done"
    (result,) = results(tmp_path, "-2")
    assert is_doubt(result)
    assert (shop.count, count_calls(tmp_path, world.tool)) == (1, 1)


def test_what_was_delivered_is_not_given_again(warm: Warm, tmp_path: Path) -> None:
    """The same call is a new one then: it may be meant."""
    shop = Shop(FILESYSTEM, tmp_path, warm)
    first = shop.go_on()
    shop.forget()
    second = shop.go_on()
    assert not is_doubt(second)
    assert "holdfast/status" not in json.dumps([first, second])
    assert shop.count == 2


def test_it_works_with_what_a_desktop_gives(warm: Warm, tmp_path: Path) -> None:
    """Working directory `/`, a minimal PATH, nearly no other variable; the command as `wrap` writes it. The
    ledger is in the directory of the user, and the commands in what the proxy says name it in full."""
    shop = Shop(FILESYSTEM, tmp_path, warm, proxied=False)
    config = tmp_path / "client.json"
    listed = {"mcpServers": {"files": {"command": shop.command[0], "args": shop.command[1:]}}}
    config.write_text(json.dumps(listed))
    assert call(tmp_path, f"mcp wrap {config} --yes").code == 0
    wrapped = json.loads(config.read_text())["mcpServers"]["files"]
    surroundings: Any = {
        "environment": {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        "directory": Path("/"),
    }
    command = [wrapped["command"], *wrapped["args"]]
    ((tool, arguments),) = shop.calls
    (tmp_path / "do").write_text(f"{tool} after server")
    said: list[str] = []
    for _ in range(2):
        with Player(command, **surroundings) as player:
            player.begin()
            result = player.call(tool, arguments)["result"]
            assert is_doubt(result)
            said.append(result["content"][0]["text"])
    ledger = tmp_path / ".local" / "share" / "holdfast" / "mcp.db"
    (line,) = {one.strip() for one in said[1].splitlines() if " landed " in one}
    assert f"--store sqlite:{ledger}" in line
    assert line in said[0]
    done = call(Path("/"), line.removeprefix("holdfast ").replace("'…'", "'it is there'"))
    assert done.code == 0, done.err
    with Player(command, **surroundings) as player:
        player.begin()
        assert "it is there" in player.call(tool, arguments)["result"]["content"][0]["text"]
    assert shop.count == 1

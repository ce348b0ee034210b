"""Through the proxy, servers of others give what they give directly."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from .http_front import behind_address
from .player import Era, Json, Player
from .scripts import ANSWERS, SCRIPTS, Script, begin_everything, same_each_time, tools_called, web_page
from .servers import behind_proxy, behind_proxy_at, from_npm


class Heard(NamedTuple):
    """All that a server said in a script."""

    answers: list[Json]
    asked: list[Json]
    told: list[Json]


def hear(script: Script, era: Era, command: Sequence[str], place: Path) -> Heard:
    """Play the script with this command."""
    (place / "memory.jsonl").unlink(missing_ok=True)
    environment = {**os.environ, **script.environment(place)}
    with Player(command, era=era, answers=ANSWERS, environment=environment) as player:
        answers = script.play(player, place)
    # Between answers, the order in which a server asks and tells is up to chance.
    return Heard(
        [same_each_time(one) for one in answers],
        sorted(map(same_each_time, player.asked), key=_as_text),
        sorted(map(same_each_time, player.told), key=_as_text),
    )


def _as_text(said: Json) -> str:
    return json.dumps(said, sort_keys=True)


SHORT = (
    ("git", "modern"),
    ("conforming", "legacy"),
    ("conforming", "modern"),
    ("memory", "legacy"),
)
CASES = [
    pytest.param(
        script,
        era,
        id=f"{script.name}-{era}",
        marks=() if (script.name, era) in SHORT else pytest.mark.long,
    )
    for script in SCRIPTS
    for era in script.eras
]


@pytest.mark.parametrize(("script", "era"), CASES)
def test_each_answer_is_the_same(script: Script, era: Era, tmp_path: Path) -> None:
    """And so is everything that the server asks for and tells."""
    with web_page() as url:
        (tmp_path / "url").write_text(url)
        direct = hear(script, era, script.command(tmp_path), tmp_path)
        command = behind_proxy(script.name, script.command(tmp_path), tmp_path / "ledger.db")
        through = hear(script, era, command, tmp_path)
    compare(direct, through)


AT_AN_ADDRESS = (
    ("conforming", "legacy"),
    ("conforming", "modern"),
    ("git", "modern"),
    ("everything", "legacy"),
)


@pytest.mark.parametrize(
    ("script", "era"),
    [
        pytest.param(
            script,
            era,
            id=f"{script.name}-{era}",
            marks=() if (script.name, era) == ("git", "modern") else pytest.mark.long,
        )
        for script in SCRIPTS
        for era in script.eras
        if (script.name, era) in AT_AN_ADDRESS
    ],
)
def test_each_answer_of_a_server_with_an_address_is_the_same(
    script: Script, era: Era, tmp_path: Path
) -> None:
    """As those of the same server on stdio."""
    with web_page() as page:
        (tmp_path / "url").write_text(page)
        direct = hear(script, era, script.command(tmp_path), tmp_path)
        environment = [f"{name}={value}" for name, value in script.environment(tmp_path).items()]
        with behind_address(["env", *environment, *script.command(tmp_path)]) as url:
            command = behind_proxy_at(script.name, url, tmp_path / "ledger.db")
            through = hear(script, era, command, tmp_path)
    compare(direct, through)


def compare(direct: Heard, through: Heard) -> None:
    """Everything is the same, and not only errors."""
    for number, (one, other) in enumerate(zip(direct.answers, through.answers, strict=True)):
        assert one == other, f"answer {number}"
    assert direct.asked == through.asked
    assert direct.told == through.told
    assert "result" in direct.answers[0]
    assert tools_called(direct.answers[1])


def test_the_environment_and_the_directory_of_a_server_are_those_that_the_client_gives(
    tmp_path: Path,
) -> None:
    """Nothing is taken away, nothing is added."""
    # Without a locale, Python sets LC_CTYPE in its own environment.
    given = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "TOKEN": "s3cret é",
        "EMPTY": "",
    }
    command = from_npm("everything")
    found: list[Json] = []
    for one in (command, behind_proxy("everything", command, tmp_path / "ledger.db")):
        with Player(one, environment=given, answers=ANSWERS, directory=tmp_path) as player:
            begin_everything(player)
            found.append(player.call("get-env"))
    assert found[0] == found[1]
    assert json.loads(found[0]["result"]["content"][0]["text"])["TOKEN"] == "s3cret é"

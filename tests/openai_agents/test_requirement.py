"""Without the SDK, or with one that is too old, the error says what to install."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import holdfast
from holdfast.adapters import compat, openai_agents

ROOT = Path(__file__).resolve().parents[2]


def test_a_missing_framework_names_extra_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of an ImportError about some module of theirs."""

    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compat, "version", nothing)
    wanted = r"holdfast\[openai-agents\].*openai-agents>=0\.24,<1; it is not installed"
    with pytest.raises(holdfast.errors.MissingExtra, match=wanted) as raised:
        importlib.reload(openai_agents)
    assert raised.value.extra == "openai-agents"


@pytest.mark.parametrize("found", ["0.23.9", "1.0.0"])
def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    """What is there, and what is needed."""
    monkeypatch.setattr(compat, "version", lambda name: found)
    with pytest.raises(holdfast.errors.MissingExtra, match=rf"openai-agents>=0\.24,<1; {found} is installed"):
        importlib.reload(openai_agents)


def test_holdfast_itself_does_not_load_it() -> None:
    """A program that does not use the adapter does not pay for it."""
    code = "import sys, holdfast; holdfast.open_store; print('agents' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("found", ["0.24.0", "0.24.7", "0.25.0rc1", "0.100.0"])
def test_a_supported_version_is_taken(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    """From the lowest one on, below the next major version."""
    monkeypatch.setattr(compat, "version", lambda name: found)
    assert importlib.reload(openai_agents).HoldfastSession


def test_where_there_is_no_sdk_a_program_is_told_what_to_install() -> None:
    """In an interpreter that finds none: not by an error about a module named `agents`."""
    code = """
import sys
from importlib import metadata

def version(name, known=metadata.version):
    if name == "openai-agents":
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
sys.modules["agents"] = None  # An import of it fails.
from holdfast.adapters.openai_agents import HoldfastSession
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    last = done.stderr.strip().splitlines()[-1]
    assert "MissingExtra" in last, done.stderr
    assert "pip install 'holdfast[openai-agents]' (openai-agents>=0.24,<1; it is not installed)" in last


@pytest.mark.parametrize(
    ("moved", "what"),
    [
        ("del sys.modules['agents._public_agent'].set_public_agent", "cannot import name 'set_public_agent'"),
        (
            "sys.modules['agents.run_internal.turn_preparation'] = None",
            "agents.run_internal.turn_preparation",
        ),
    ],
    ids=["name", "module"],
)
def test_a_version_in_which_something_has_moved_is_named(moved: str, what: str) -> None:
    """The adapter uses some names that the SDK does not promise to keep. It is not an error about a name."""
    code = f"import sys, agents\n{moved}\nfrom holdfast.adapters.openai_agents import DurableRunner"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    last = done.stderr.strip().splitlines()[-1]
    assert "MissingExtra" in last, done.stderr
    installed = (
        rf"'holdfast\[openai-agents\]' \(openai-agents {re.escape(version('openai-agents'))} is installed"
    )
    assert re.search(installed, last), last
    assert what in last


def test_another_import_error_stays_what_it_is() -> None:
    with pytest.raises(ImportError) as raised, compat.explain_moved("a", "x", "openai-agents", "agents"):
        importlib.import_module("there_is_no_such_module")
    assert not isinstance(raised.value, holdfast.errors.MissingExtra)


def test_the_tests_run_under_the_lowest_supported_version() -> None:
    """That of the lock. Once the lock has a later one, the lowest needs a lock of its own, as those of other
    frameworks have, and a place in `make test-lowest`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = extras["openai-agents"]
    lowest = re.fullmatch(r"openai-agents>=(\d+\.\d+),<1", wanted)
    locked = re.search(r"^openai-agents==(\d+\.\d+)\.", (ROOT / "requirements/dev.lock").read_text(), re.M)
    assert lowest is not None
    assert locked is not None
    assert locked[1] == lowest[1]

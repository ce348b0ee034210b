"""Without the SDK, or with one that is too old, the error says what to install."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import holdfast
from holdfast.adapters import compat, openai_agents


def test_a_missing_framework_names_extra_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of an ImportError about some module of theirs."""

    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compat, "version", nothing)
    wanted = r"holdfast\[openai-agents\].*openai-agents>=0\.24,<1; it is not installed"
    with pytest.raises(holdfast.errors.MissingExtra, match=wanted) as raised:
        importlib.reload(openai_agents)
    assert raised.value.extra == "openai-agents"


@pytest.mark.parametrize("version", ["0.23.9", "1.0.0"])
def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """What is there, and what is needed."""
    monkeypatch.setattr(compat, "version", lambda name: version)
    with pytest.raises(
        holdfast.errors.MissingExtra, match=rf"openai-agents>=0\.24,<1; {version} is installed"
    ):
        importlib.reload(openai_agents)


def test_holdfast_itself_does_not_load_it() -> None:
    """A program that does not use the adapter does not pay for it."""
    code = "import sys, holdfast; holdfast.open_store; print('agents' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False", done.stderr

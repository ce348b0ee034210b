"""Without LangGraph, or with one that is too old, the error says what to install."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import holdfast
from holdfast.adapters import compat, langgraph


def test_a_missing_framework_names_extra_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of an ImportError about some module of theirs."""

    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compat, "version", nothing)
    with pytest.raises(
        holdfast.errors.MissingExtra, match=r"holdfast\[langgraph\].*langgraph>=1\.2; it is not installed"
    ) as raised:
        importlib.reload(langgraph)
    assert raised.value.extra == "langgraph"


def test_a_framework_that_is_too_old_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there, and what is needed."""
    monkeypatch.setattr(compat, "version", lambda name: "4.2.9" if "checkpoint" in name else "1.2.0")
    with pytest.raises(
        holdfast.errors.MissingExtra, match=r"langgraph-checkpoint>=4\.3; 4\.2\.9 is installed"
    ):
        importlib.reload(langgraph)


def test_holdfast_itself_does_not_load_it() -> None:
    """Who does not use the adapter does not pay for it."""
    code = "import sys, holdfast; holdfast.open_store; print('langgraph' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr

"""The middleware alone needs LangChain's agents, and says so."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import holdfast
from holdfast.adapters import compat, langgraph
from holdfast.adapters.langgraph import middleware


def test_a_missing_langchain_names_extra_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of an ImportError about some module of theirs."""

    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compat, "version", nothing)
    with pytest.raises(
        holdfast.errors.MissingExtra,
        match=r"HoldfastMiddleware needs .*'holdfast\[langchain\]' \(langchain>=1\.4,<2; it is not installed",
    ):
        importlib.reload(middleware)


def test_the_rest_of_the_adapter_does_not_load_it() -> None:
    """Savers and tools are for graphs without LangChain's agents, too."""
    code = (
        "import sys, holdfast.adapters.langgraph as it; it.HoldfastSaver; print('langchain' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False", done.stderr


def test_a_misspelt_name_is_an_attribute_error() -> None:
    """As for any module."""
    assert not hasattr(langgraph, "HoldfastMiddlewear")

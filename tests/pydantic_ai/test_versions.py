"""The versions of pydantic-ai that are supported, and what is said about others."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.adapters import compat, pydantic_ai
from holdfast.errors import MissingExtra

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("found", ["2.61.9", "1.9", "3.0.0"])
def test_another_version_is_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda package: found)
    with pytest.raises(MissingExtra) as refused:
        importlib.reload(pydantic_ai)
    assert f"pydantic-ai-slim>=2.62,<3; {found} is installed" in str(refused.value)
    assert "pip install 'holdfast[pydantic-ai]'" in str(refused.value)


def test_without_the_framework_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(compat, "version", missing)
    with pytest.raises(MissingExtra, match=r"holdfast\[pydantic-ai\]"):
        importlib.reload(pydantic_ai)


@pytest.mark.parametrize("found", ["2.62.0", "2.66.1", "2.100"])
def test_supported_versions_are_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda package: found)
    importlib.reload(pydantic_ai)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("which", ["lowest", "newest"])
def test_the_tests_pass_under_the_lowest_and_the_newest_version(which: str, tmp_path: Path) -> None:
    """The framework alone is put before what is installed; the rest is as in every other test."""
    lock, site = ROOT / "requirements" / f"pydantic-ai-{which}.lock", tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "--target", str(site), "-r", str(lock)], check=True)
    path = os.pathsep.join([str(site), str(ROOT / "src"), str(ROOT)])
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not long"]
    done = subprocess.run(
        [*tests, "tests/pydantic_ai"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    (installed,) = site.glob("pydantic_ai_slim-*.dist-info")
    assert which == "newest" or installed.name.startswith("pydantic_ai_slim-2.62")

"""Locks on files: what a handler of signals that raises leaves of them."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

from holdfast.errors import StoreBusy
from holdfast.system import file_locks
from holdfast.system.file_locks import FileLock

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


class Interrupted(BaseException):
    """What a handler raises."""


class Interrupting:
    """Raises before the n-th line of the module on this thread, as a signal's handler might."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __enter__(self) -> None:
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        return self._line if frame.f_code.co_filename == file_locks.__file__ else None

    def _line(self, frame: FrameType, event: str, arg: object) -> TraceFunction:
        # Python sees to signals after calls, and never where a block begins or ends.
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        self.left -= event == "line" and not source.startswith(("with ", "try:", "finally:"))
        if not self.left:
            self.left = -1
            raise Interrupted
        return self._line


def test_a_handler_that_raises_at_any_line_leaves_no_lock(tmp_path: Path) -> None:
    """Neither where the lock is taken, nor where it is released."""
    path = tmp_path / "lock"
    path.touch()
    number = 1
    while _is_interrupted(path, number):
        with FileLock(path, wait_s=0) as is_held:
            assert is_held
        number += 1
    assert number > 15


def _is_interrupted(path: Path, number: int) -> bool:
    """Whether there are so many lines."""
    try:
        with Interrupting(number), FileLock(path):
            pass
    except Interrupted:
        return True
    return False


def test_a_lock_is_waited_for_and_excludes_others(tmp_path: Path) -> None:
    """Shared ones exclude none of their kind; one on a missing file holds nothing."""
    path = tmp_path / "lock"
    with FileLock(path) as is_held:
        assert not is_held
    path.touch()
    with FileLock(path, shared=True), FileLock(path, shared=True, wait_s=0) as is_held:
        assert is_held
        with pytest.raises(StoreBusy, match="held this lock"), FileLock(path, wait_s=0):
            pass
    with FileLock(path, wait_s=0) as is_held:
        assert is_held

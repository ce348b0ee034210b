"""What every subject is given to keep: the same text, and so the same bytes."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import shutil
import textwrap
from collections.abc import Iterator

CHARACTERS = 1000
"""Of one message. A step has two of them."""


def texts() -> Iterator[str]:
    """Slices of Python source, over and over."""
    source = "".join(inspect.getsource(module) for module in (argparse, ast, inspect, shutil, textwrap))
    slices = [source[start : start + CHARACTERS] for start in range(0, len(source) - CHARACTERS, CHARACTERS)]
    return itertools.cycle(slices)


def pairs() -> Iterator[tuple[str, str]]:
    """What was said and what was answered, step by step."""
    source = texts()
    return zip(source, source, strict=False)

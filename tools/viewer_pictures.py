"""Take pictures of the viewer's pages: at two widths, in both colour schemes.

    .venv/bin/python tools/viewer_pictures.py FOLDER                  every page, to look at
    .venv/bin/python tools/viewer_pictures.py --docs docs/pictures    those of the documentation

The store is the one that the tests open in a browser, with something of everything. Needs Debian's chromium.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from playwright.sync_api import Browser  # noqa: E402

from tests.browser import open_browser, visit  # noqa: E402
from tests.viewer.served import Served, run_apart, served  # noqa: E402
from tests.viewer.shop import stock  # noqa: E402

WIDE, NARROW = 1200, 420
SESSION = "/sessions/order-42"
PAGES = {
    "sessions": "/",
    "needs": "/needs",
    "workers": "/workers",
    "stats": "/stats",
    "session": SESSION,
    "transcript": f"{SESSION}/transcript",
    "effects": f"{SESSION}/effects",
    "state": f"{SESSION}/state",
    "versions": f"{SESSION}/versions",
    "entries": f"{SESSION}/entries",
    "diff": f"{SESSION}/diff?a=2&b=3",
    "fork": f"{SESSION}/fork?version=2",
    "doubtful": "/sessions/doubtful",
    "family": "/sessions/family",
}


class Picture(NamedTuple):
    """A picture of the documentation: of a page, from a heading on."""

    page: str
    height: int
    heading: str
    scheme: Literal["light", "dark"] = "light"


DOCS = {
    "viewer-sessions": Picture("sessions", 520, "Sessions"),
    "viewer-timeline": Picture("session", 986, "Timeline"),
    "viewer-needs": Picture("needs", 640, "Needs you", "dark"),
}


def take_all(browser: Browser, viewer: Served, folder: Path) -> None:
    """Every page, as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for width in (WIDE, NARROW):
            with visit(browser, viewer.entrance, scheme=scheme, width=width) as visited:
                for name, path in PAGES.items():
                    visited.page.goto(viewer.base + path)
                    visited.page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)


def take_for_docs(browser: Browser, viewer: Served, folder: Path) -> None:
    """The pictures of the documentation."""
    for name, picture in DOCS.items():
        with visit(browser, viewer.entrance, scheme=picture.scheme, width=WIDE) as visited:
            visited.page.set_viewport_size({"width": WIDE, "height": picture.height})
            visited.page.goto(viewer.base + PAGES[picture.page])
            # The top of the page is the first heading's.
            if picture.heading != visited.page.locator("h1").inner_text():
                visited.page.get_by_role("heading", name=picture.heading).evaluate(
                    "(one) => one.scrollIntoView()"
                )
            visited.page.screenshot(path=folder / f"{name}.png")


def main() -> None:
    """Stock a store, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", action="store_true", help="only the pictures of the documentation")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    with tempfile.TemporaryDirectory() as place:
        run_apart(stock, Path(place))
        with open_browser() as browser, served(Path(place), "--allow-changes") as viewer:
            (take_for_docs if options.docs else take_all)(browser, viewer, folder)


if __name__ == "__main__":
    main()

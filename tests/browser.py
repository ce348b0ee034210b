"""A browser for tests of pages: Debian's chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

PATIENCE_MS = 300_000
"""Only a hanging browser takes so long."""


@contextmanager
def open_browser(*options: str) -> Iterator[Browser]:
    """A browser without windows. A test that needs one is skipped where chromium is missing."""
    program = shutil.which("chromium")
    if program is None:
        why = "chromium is missing: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    arguments = [*options, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_MS)
        yield browser
        browser.close()


class Visit:
    """A page that was opened, with what it did beside being shown. What it asks is answered by no, unless
    `accepts` says yes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.accepts = False
        self.console: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("dialog", self._answer)
        page.on("request", lambda request: self.requests.append(request.url))

    def _answer(self, dialog: Dialog) -> None:
        if self.accepts:
            dialog.accept()
            return
        self.console.append(dialog.message)
        dialog.dismiss()


@contextmanager
def visit(
    browser: Browser, place: Path | str, *, scheme: Literal["light", "dark"] = "light", width: int = 900
) -> Iterator[Visit]:
    """Open a file, or an address, in a browser that knows nothing from before."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    try:
        visited = Visit(context.new_page())
        visited.page.goto(place.as_uri() if isinstance(place, Path) else place)
        yield visited
    finally:
        context.close()

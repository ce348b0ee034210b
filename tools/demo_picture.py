"""Draw the demo for the front page: run it, and write what its terminal showed as an SVG.

    .venv/bin/python tools/demo_picture.py docs/pictures/demo.svg

The picture ends where the second process has asked the bank. It names no font that would have to be fetched.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS = 92
LAST_LINE = "verify asks the bank"

DARK = TerminalTheme(
    (13, 17, 23),
    (201, 209, 217),
    [
        (72, 79, 88),
        (218, 54, 51),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (240, 246, 252),
    ],
)

# As rich draws it, without the fonts that it would load from elsewhere.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"
 role="img" aria-label="An agent pays and is killed; the next process asks the bank, and pays nothing">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def play(database: Path) -> str:
    """What the demo prints on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "holdfast.demo", str(database), "--fast"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, env=environment)
    os.close(theirs)
    printed = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # The other end was closed.
            break
        if not part:
            break
        printed += part
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"the demo ended with status {process.returncode}")
    return printed.decode().replace("\r\n", "\n")


def cut(printed: str) -> str:
    """The part that is drawn."""
    lines = printed.strip("\n").split("\n")
    last = next(number for number, line in enumerate(lines) if LAST_LINE in line)
    return "\n".join(["\x1b[1m$ make demo\x1b[0m", "", *lines[: last + 1]])


def draw(printed: str) -> str:
    """The text of a terminal as SVG; the same bytes for the same text."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(printed))
    svg = console.export_svg(title="holdfast", theme=DARK, code_format=SVG, unique_id="demo")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def main() -> None:
    """Write the picture to the path that is given."""
    (target,) = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory:
        printed = play(Path(directory) / "demo.db")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(draw(cut(printed)))


if __name__ == "__main__":
    main()

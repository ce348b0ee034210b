"""What is green and what is red, over all commands."""

from __future__ import annotations

STANDING = {
    "running": "cyan",
    "held": "cyan",
    "completed": "green",
    "interrupted": "bold red",
    "failed": "red",
    "waiting": "yellow",
    "cancelled": "dim",
}
RUN = {**STANDING, "paused": "yellow"}
STATUS = {
    "replied": "green",
    "completed": "green",
    "landed": "green",
    "replayed": "cyan",
    "undone": "cyan",
    "failed": "red",
    "no reply": "red",
    "cut off": "bold red",
    "in_doubt": "bold yellow",
    "not_landed": "yellow",
    "gave_up": "yellow",
    "discarded": "dim",
}

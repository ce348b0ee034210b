"""Notifications of calls that wait for a person: what they say, and how they are sent (`notify`).

They leave the machine. So what looks like a secret is left out, and texts are shortened; the record in the
store has everything.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from ..formatting import compact, short_args, shorten, visible
from ..limits import NOTIFY_SEND_S, NOTIFY_TEXT_CHARS
from ..redact import leave_out_secrets, show_origin, without_secrets
from ..reprs import name_of
from ..store.approvals import Waiting
from ..workers.notifier import identify_waiting
from .advice import answer_commands
from .exit_codes import Exit, Stop
from .json_views import shape_waiting

_ANSWER_BYTES: Final = 64 << 10
_IN_ADDRESS: Final = "/?%:@!$&'()*+,;=~"
"""Characters of a path or query that stay as they are."""


class NotDelivered(Exception):
    """A notification could not be sent. Its text names no secret of the address or the command."""


def describe_waiting(one: Waiting, *, store_options: str, ui: str | None) -> dict[str, Any]:
    """The notification of a call that waits: the keys of `pending`, with `id`, `text` and `link`."""
    shape = shape_waiting(one)
    for name in ("args", "notes"):
        shape[name] = without_secrets(shape.get(name))
        if len(compact(shape[name])) > NOTIFY_TEXT_CHARS:
            shape[name] = shorten(visible(short_args(shape[name])), NOTIFY_TEXT_CHARS)
    shape["why"] = shorten(visible(leave_out_secrets(shape["why"])), NOTIFY_TEXT_CHARS)
    args = "…" if one.args is None else shorten(visible(short_args(shape["args"])), NOTIFY_TEXT_CHARS)
    # By its entry: among the calls that wait for other reasons, its id may not be unique.
    commands = answer_commands(shape_waiting(one), (), store_options)
    link = None if ui is None else link_to(ui, one)
    what = "to approve" if one.kind == "approval" else "in doubt"
    text = f"{what}: {shorten(visible(one.tool), 200)}({args}) in session {one.session}"
    text += f", since {one.since:%Y-%m-%d %H:%M:%S} UTC"
    if shape["why"]:
        text += f". {shape['why']}"
    return {
        "id": identify_waiting(one),
        "text": f"{text}\n{link or next(iter(commands.values()))}",
        **shape,
        "commands": commands,
        "link": link,
    }


def link_to(ui: str, one: Waiting) -> str:
    """The page of the viewer where the call can be answered."""
    place = f"{ui.rstrip('/')}/needs"
    return (
        place if one.operation is not None else f"{place}/call?session={quote(one.session)}&entry={one.entry}"
    )


class NotificationChannel(Protocol):
    """A way to send notifications. `send` blocks, and raises `NotDelivered`."""

    kind: str
    """`webhook` or `command`."""
    name: str
    """For people."""
    place: str
    """The whole address or command."""

    def send(self, notification: dict[str, Any]) -> None:
        """Send one, and return when it was taken."""


class Webhook:
    """An address that gets a POST with JSON for each notification. Its path and query are secrets."""

    kind = "webhook"

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            server = f"[{host}]" if ":" in host else host.encode("idna").decode()
            server += f":{parts.port}" if parts.port is not None else ""
        except ValueError:
            host = ""
        if not host or parts.scheme not in ("http", "https") or any(ord(one) <= 32 for one in url):
            raise Stop(Exit.USAGE, "--webhook is an address that begins with https:// or http://")
        self.name, self.place = show_origin(url), url
        path, query = quote(parts.path, safe=_IN_ADDRESS), quote(parts.query, safe=_IN_ADDRESS)
        self._url = urlunsplit((parts.scheme, server, path, query, ""))
        self._headers = {"Content-Type": "application/json", "User-Agent": "holdfast"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(user).decode()}"

    def send(self, notification: dict[str, Any]) -> None:
        """POST it. An answer with a status from 200 to 299 means that it was taken."""
        headers = {**self._headers, "Idempotency-Key": notification["id"]}
        body = msgspec.json.encode(notification)
        request = Request(self._url, body, headers, method="POST")
        try:
            with build_opener(_NoRedirects).open(request, timeout=NOTIFY_SEND_S) as response:
                response.read(_ANSWER_BYTES)
        except HTTPError as error:
            error.close()
            raise NotDelivered(f"{self.name} answered {error.code}") from None
        except (URLError, OSError, http.client.HTTPException) as error:
            # Texts of other libraries may quote the address.
            reason = error.reason if isinstance(error, URLError) else error
            why = getattr(reason, "strerror", None) or name_of(type(reason))
            raise NotDelivered(f"{self.name} gave no answer: {why}") from None


class _NoRedirects(HTTPRedirectHandler):
    """A redirected POST becomes a GET, and may go to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Command:
    """A program that is started for each notification, and gets it as JSON on stdin."""

    kind = "command"

    def __init__(self, line: str) -> None:
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise Stop(Exit.USAGE, f"--command cannot be taken apart: {error}") from error
        if not self._words:
            raise Stop(Exit.USAGE, "--command names no program")
        self.name, self.place = self._words[0], shlex.join(self._words)

    def send(self, notification: dict[str, Any]) -> None:
        """Run it to its end. The exit code 0 means that a person was told."""
        environment = {**os.environ, "HOLDFAST_TEXT": notification["text"]}
        try:
            process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=2, env=environment, start_new_session=True
            )
        except OSError as error:
            raise NotDelivered(f"{self.name} cannot be started: {error.strerror}") from None
        try:
            process.communicate(msgspec.json.encode(notification), timeout=NOTIFY_SEND_S)
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"{self.name} did not end within {NOTIFY_SEND_S:g} s") from None
        finally:
            _end(process)
        if process.returncode:
            raise NotDelivered(f"{self.name} ended with {process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that has not ended, with what it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def name_notifier(channel: NotificationChannel, name: str | None, store_id: str) -> str:
    """The name of the notifier of a channel: without a given one, a digest, as an address is a secret."""
    chosen = name or hashlib.sha256(f"{store_id} {channel.place}".encode()).hexdigest()[:24]
    return f"{channel.kind} {chosen}"


def make_sender(
    channel: NotificationChannel,
    *,
    store_options: str,
    ui: str | None,
    on_sent: Callable[[dict[str, Any]], None],
) -> Callable[[Waiting], None]:
    """The function that tells of a call through a channel."""

    def send(one: Waiting) -> None:
        notification = describe_waiting(one, store_options=store_options, ui=ui)
        channel.send(notification)
        on_sent(notification)

    return send

"""Look for an e-mail in a mailbox, over IMAP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..limits import SETTLED_AFTER_S
from ..redact import scrub
from ..reprs import attempt, describe_error
from ..tools.context import AnyContext
from ..tools.schema import wants_context
from .templates import CallNames, CannotTell
from .verify_hook import ResultOf, Trace, VerifyHook, in_thread, make_hook

if TYPE_CHECKING:
    from imaplib import IMAP4


def message_id(ctx: AnyContext, domain: str) -> str:
    """The Message-ID by which `mail` finds the e-mail of a call: `message["Message-ID"] = …`."""
    return f"<holdfast.{ctx.key}@{domain}>"


def mail(
    connect: Callable[[], IMAP4] | Callable[[AnyContext], IMAP4],
    *,
    domain: str,
    folders: str | Sequence[str] = "Sent",
    result: ResultOf = None,
    settled_after_s: float = SETTLED_AFTER_S,
) -> VerifyHook:
    """Find the e-mail of the call by its Message-ID, in folders of a mailbox.

        def mailbox() -> imaplib.IMAP4:
            box = imaplib.IMAP4_SSL("imap.example.org", timeout=15)
            box.login("clerk", os.environ["MAIL_PASSWORD"])
            return box

        verify=recipes.mail(mailbox, domain="example.org")

    The tool sets `recipes.message_id(ctx, "example.org")`. The folders must be ones where the server itself
    puts what was sent: its own copies, or those of a Bcc to this mailbox. A copy that the tool stores after
    it sent the mail proves nothing if it is missing. `found` has `message_id` and `folder`.
    """
    names_of_folders = (folders,) if isinstance(folders, str) else tuple(folders)
    quoted = {name: _quote(name) for name in names_of_folders}
    if not quoted or not domain.isascii() or not domain or any(one in ' <>@"\\\r\n' for one in domain):
        raise BadInput(f"domain={domain!r}, folders={folders!r}: name a domain in ASCII, and a folder")

    async def question(names: CallNames) -> Trace | None:
        wanted = message_id(names.ctx, domain)
        open_box: Any = connect
        if attempt(lambda: wants_context(open_box), lambda: False):
            open_box = partial(open_box, names.ctx)
        folder = await in_thread(partial(_find_folder, open_box, quoted, wanted))
        return None if folder is None else Trace({"message_id": wanted, "folder": folder})

    return make_hook("mail", question, (), result=result, settled_after_s=settled_after_s)


def _find_folder(connect: Callable[[], IMAP4], folders: dict[str, str], wanted: str) -> str | None:
    try:
        box = connect()
        try:
            return next((name for name, quoted in folders.items() if _has(box, name, quoted, wanted)), None)
        finally:
            with suppress(Exception):  # What was found is what counts.
                box.logout()
    except CannotTell:
        raise
    except Exception as error:
        raise CannotTell(f"the mail server answered {scrub(describe_error(error))}") from error


def _has(box: IMAP4, name: str, quoted: str, wanted: str) -> bool:
    status, data = box.select(quoted, readonly=True)
    if status != "OK":
        raise CannotTell(f"the folder {name!r} cannot be opened: {_as_text(data)}")
    status, data = box.uid("SEARCH", "HEADER", "Message-ID", f'"{wanted}"')
    if status != "OK":
        raise CannotTell(f"the folder {name!r} cannot be searched: {_as_text(data)}")
    return any(part.split() for part in data if isinstance(part, bytes))


def _as_text(data: Sequence[Any]) -> str:
    return scrub(b" ".join(part for part in data if isinstance(part, bytes)).decode("utf-8", "replace"))


def _quote(folder: str) -> str:
    if not folder.isascii() or any(ord(one) < 32 for one in folder):
        raise BadInput(f"folder {folder!r}: write it as IMAP does, in modified UTF-7")
    return '"{}"'.format(folder.replace("\\", "\\\\").replace('"', '\\"'))

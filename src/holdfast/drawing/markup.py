"""HTML and SVG from Python: elements, whose texts and attributes are escaped.

Everything that a person, a model or a tool said becomes text. Only `Html`, which only this module makes, is
taken over as it is.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final, TypeAlias

from ..formatting import visible


class Html(str):
    """Markup."""

    __slots__ = ()


Child: TypeAlias = str | Html | None
_VOID: Final = frozenset({"meta", "link", "input", "img", "br", "hr"})
_EMPTY: Final = Html("")


def text(said: str) -> Html:
    """A text, without anything that a browser would take for markup, or hide, or reorder."""
    return Html(escape(visible(said, lines=True)))


def el(tag: str, /, *children: Child, **attributes: str | float | None) -> Html:
    """An element. An attribute that is None is left out; `class_` is `class`, and `_` is `-`."""
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is not None:
            shown = f"{value:.5g}" if isinstance(value, float) else str(value)
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{text(shown)}"')
    parts.append(">")
    if tag not in _VOID:
        parts += [join(*children), f"</{tag}>"]
    return Html("".join(parts))


def join(*children: Child) -> Html:
    """Several elements and texts, one after the other."""
    if not children:
        return _EMPTY
    return Html("".join(one if isinstance(one, Html) else text(one) for one in children if one))


def style(rules: str) -> Html:
    """A style sheet of our own."""
    return Html(f"<style>{rules}</style>")


def document(title: str, rules: str, *body: Child) -> Html:
    """A whole page. Its policy lets nothing be loaded, and no script run; the style sheet is its own."""
    digest = b64encode(sha256(rules.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        style(rules),
    )
    return join(
        Html("<!doctype html>\n"), el("html", head, el("body", *body, class_="hf"), lang="en"), Html("\n")
    )

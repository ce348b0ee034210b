"""What the tests of the viewer share: a store with something to see, and browsers without a window."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx

import holdfast
from holdfast import Registry, Session, Store, tool
from holdfast.drivers.contract import Driver
from holdfast.viewer import app
from tests.internals import engine_of
from tests.tools.example_tools import call, die, reply

Url = str | Driver
BASE = "http://127.0.0.1:7465"
TOKEN = "a-token-that-no-other-site-knows"


@tool(side_effects={"mutate"}, needs_approval=True)
async def pay(to: str, cents: int) -> str:
    """Pay somebody."""
    return f"paid {to} {cents}"


@tool(side_effects={"mutate"})
async def send(ctx: holdfast.ToolContext[Any], text: str) -> str:
    """Send a letter, and lose the answer."""
    await ctx.annotate(carrier="snail")
    raise ConnectionError("the line went dead")


async def ask(store: Store, id: str, args: Mapping[str, Any], *, title: str = "Please pay") -> int:
    """A session whose call waits for approval; the entry that asked."""
    async with store.session(id) as session:
        await session.add(title)
        await reply(session, call("pay", args))
        await Registry([pay]).dispatch_step(session)
        (question,) = session.state.facts.effects.questions.values()
        return question.asked


async def doubt(store: Store, id: str, text: str = "Dear Ann", *, title: str = "Please write") -> int:
    """A session with a call in doubt; the entry that issued it."""
    async with store.session(id) as session:
        await session.add(title)
        await reply(session, call("send", {"text": text}))
        await Registry([send]).dispatch_step(session)
        (row,) = session.state.in_doubt
        return row.issued


async def kill(url: Url, id: str, text: str = "Dear Bob") -> int:
    """A session whose process dies during a call; the entry that issued it."""
    store = holdfast.open_store(url)
    await store.__aenter__()
    session = store.session(id)
    await session.__aenter__()
    issued: list[int] = []

    @tool(name="send", side_effects={"mutate"})
    async def send_and_die(text: str) -> str:
        """Send a letter, and die."""
        await session.flush()
        issued.append(session.state.seq)
        die(store)
        return "never told"

    await session.add("Please write")
    await reply(session, call("send", {"text": text}))
    with suppress(holdfast.errors.HoldfastError):
        await Registry([send_and_die]).dispatch_step(session)
    return issued[0]


class Visitor:
    """A browser: it keeps cookies, and sends what a browser sends with a form."""

    def __init__(self, client: httpx.AsyncClient, base: str = BASE) -> None:
        self.client, self.base = client, base

    async def get(self, path: str, *, status: int = 200, **headers: str) -> str:
        """The page at a path."""
        answer = await self.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text

    async def fields(self, path: str, form: str) -> dict[str, str]:
        """The hidden fields of the form on a page that has this text in it."""
        forms = re.findall(r"<form [^>]*method=\"post\".*?</form>", await self.get(path), re.DOTALL)
        (found,) = [one for one in forms if form in one]
        hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', found)
        return {name: unescape(value) for name, value in hidden}

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> httpx.Response:
        """Send a form as a browser does."""
        sent = {"origin": self.base, "sec-fetch-site": "same-origin", **headers}
        return await self.client.post(path, data=dict(fields), headers=sent)

    async def answer(self, session: str, entry: int, form: str, **fields: str) -> httpx.Response:
        """Fill the form of a call that has this text in it, send it, and follow where it leads."""
        hidden = await self.fields(f"/needs/call?session={session}&entry={entry}", form)
        answer = await self.post("/needs/answer", {**hidden, **fields})
        if answer.status_code != 303:
            return answer
        return await self.client.get(answer.headers["location"])


@asynccontextmanager
async def visiting(store: Store, *, token: str | None = None, **options: Any) -> AsyncIterator[Visitor]:
    """A visitor of a store that is open."""
    made = app(store, token=token, url="sqlite:agents.db", **options)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url=BASE) as client:
        visitor = Visitor(client)
        if token is not None:
            assert (await client.get("/", params={"token": token})).status_code == 303
        yield visitor


class Markup(HTMLParser):
    """The tags of a page and the names of their attributes, as a browser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)


def text_of(markup: str) -> str:
    """What a reader sees, about."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", markup)).split())


async def open_session(store: Store, id: str) -> Session:
    """A session that stays held until the store is closed."""
    session = store.session(id)
    await session.__aenter__()
    return session


def count_reads(store: Store) -> list[str]:
    """Note whose journal the driver is asked for."""
    driver = engine_of(store).driver
    read_before, read = driver.read, []

    def noted(session: Any, *args: Any, **options: Any) -> Any:
        read.append(session)
        return read_before(session, *args, **options)

    driver.read = noted  # type: ignore[method-assign]
    return read

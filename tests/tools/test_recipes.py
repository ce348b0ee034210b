"""Ready-made verify hooks: each tells what happened from what did not, and says when it cannot."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import httpx
import psycopg
import pytest
import requests

import holdfast.blocking
from holdfast import Landed, NotLanded, Registry, ToolContext, Unsure, recipes, tool
from holdfast.errors import BadInput
from holdfast.http import AsyncTransport
from holdfast.recipes import verify_hook
from tests.crash.fork_server import Warm
from tests.tools import recipe_process
from tests.tools.example_tools import NoWaiting, opened
from tests.tools.http_services import refusing_url
from tests.tools.json_service import Answer, Asked, OrderService
from tests.tools.mail_server import open_mailbox, serve_mail
from tests.tools.recipe_worlds import (
    DOMAIN,
    WORLDS,
    GitCommit,
    PostgresRow,
    SentMail,
    SqliteRow,
)

EVERY_WORLD = pytest.mark.parametrize("kind", WORLDS)


@pytest.fixture(scope="module")
def mail_port() -> Iterator[int]:
    """A mail server."""
    with serve_mail() as port:
        yield port


@pytest.fixture
def order_service() -> Iterator[OrderService]:
    """A JSON service."""
    with OrderService() as service:
        yield service


@pytest.fixture(scope="session")
def git() -> None:
    """The program."""
    if shutil.which("git") is None:
        why = "commits are looked for with git, which is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture
def find_place(request: pytest.FixtureRequest, quick_path: Path) -> Callable[[str], str]:
    """Gives the place of a world; what it needs is started then."""

    def find(kind: str) -> str:
        get = request.getfixturevalue
        match kind:
            case "ListedOrders" | "OrdersByRequest":
                return str(get("order_service").url)
            case "PostgresRow":
                return f"{get('postgres')} {get('schema')}"
            case "GitCommit":
                get("git")
            case "SentMail":
                SentMail(str(get("mail_port"))).clear()
                return str(get("mail_port"))
        return str(quick_path / "world")

    return find


def context(key: str = "k1", **notes: Any) -> ToolContext[Any]:
    """The context of a call."""
    return ToolContext(key=key, call_id="c", attempt=1, deps=None, session=None, issued_at=None, notes=notes)


# -- processes that are killed ---------------------------------------------------------------------------


@EVERY_WORLD
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_tool_acts_once(
    kind: str, moment: str, loaded_warm: Warm, quick_path: Path, find_place: Callable[[str], str]
) -> None:
    """Killed after it acted: found, and not repeated. Killed before: not found, and done in the next life."""
    place, url = find_place(kind), f"sqlite:{quick_path}/store.db"
    world = WORLDS[kind](place)
    world.prepare()
    with loaded_warm.child(recipe_process.work, url, kind, place, moment) as child:
        assert child.hear() == moment
        child.kill()
        child.wait()
    assert world.list_done() == ["tea"] * (moment == "after")
    ((status, said),) = loaded_warm.call(recipe_process.resume, url, kind, place)
    assert status == "completed", said
    assert world.list_done() == ["tea"]


@EVERY_WORLD
async def test_what_the_tool_would_have_returned_is_what_the_recipe_returns(
    kind: str, find_place: Callable[[str], str]
) -> None:
    """The next call gets the result as if there had been no crash; before, nothing is found."""
    world = WORLDS[kind](find_place(kind))
    world.prepare()
    returned: list[str] = []

    @tool(side_effects="mutate", verify=world.hook())
    def act(ctx: ToolContext[Any], what: str) -> str:
        if ctx.attempt == 1 and not returned:
            returned.append("")
            raise ConnectionError("it is not known whether it was done")
        returned.append(world.act(ctx, what))
        raise ConnectionError("it is not known whether it was done")

    registry = Registry([act])
    async with opened("memory:") as (_, session):
        first = await registry.dispatch("act", {"what": "tea"}, session=session)
        assert (first.status, world.list_done()) == ("failed", []), first.content
        second = await registry.dispatch("act", {"what": "tea"}, session=session)
        assert second.status == "completed", second.content
        assert second.content.endswith(returned[-1])
    assert world.list_done() == ["tea"]


# -- what every recipe has in common ---------------------------------------------------------------------


async def test_an_effect_that_is_not_there_is_looked_for_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was sent just before its process died may be done meanwhile."""
    waiting = NoWaiting(monkeypatch, verify_hook)
    with OrderService() as service:
        hook = recipes.find(service.url + "/orders", where={"reference": "{ctx.key}"})
        assert await hook(context()) == NotLanded()
        assert waiting.slept == [10.0]
        assert len(service.asked) == 2
        waiting.during = lambda: service.orders.append({"reference": "k1", "id": 7, "key": None})
        assert isinstance(await hook(context()), Landed)
        assert isinstance(await hook(context()), Landed)  # It is there: no wait.
        assert waiting.slept == [10.0] * 2


async def test_a_name_that_the_tool_lacks_is_refused_when_it_is_declared() -> None:
    """A misspelt argument is not found out in the middle of a recovery."""
    hook = recipes.find("https://shop.example/{ordr}", where={"reference": "{ctx.key}", "n": "{cents}"})
    with pytest.raises(BadInput, match=r"verify must have the tool's own parameters \(order, cents\)"):

        @tool(side_effects="mutate", verify=hook)
        def pay(order: str, cents: int) -> None: ...


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: recipes.find("https://s.example/{", where={"a": 1}), "names in"),
        (lambda: recipes.find("https://s.example/{}", where={"a": 1}), "name of an argument"),
        (lambda: recipes.find("https://s.example/{0}", where={"a": 1}), "names in"),
        (lambda: recipes.find("https://s.example", where="a"), "is a mapping"),  # type: ignore[arg-type]
        (lambda: recipes.get("https://s.example", settled_after_s=31), "verify_after_s"),
        (lambda: recipes.get("https://s.example", settled_after_s=-1), "between 0 and 30"),
        (lambda: recipes.row(sqlite3.connect, "SELECT 1", "{ctx.key}"), "parameters is a list"),
        (lambda: recipes.mail(open_mailbox, domain="a b"), "domain in ASCII"),  # type: ignore[arg-type]
        (lambda: recipes.mail(open_mailbox, domain="a", folders="Entwürfe"), "UTF-7"),  # type: ignore[arg-type]
        (lambda: recipes.mail(open_mailbox, domain="a", folders=()), "a folder"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_declaration_is_refused_at_once(make: Callable[[], Any], match: str) -> None:
    """With what to write instead."""
    with pytest.raises(BadInput, match=match):
        make()


async def test_a_note_that_is_missing_is_unsure() -> None:
    """A recipe cannot ask for what it does not know."""
    with OrderService() as service:
        hook = recipes.get(service.url + "/orders/{ctx.notes[vendor_id]}", settled_after_s=0)
        found = await hook(context())
        assert isinstance(found, Unsure)
        assert "{ctx.notes[vendor_id]}" in found.why
        assert service.asked == []
        service.add({"reference": "v-7"})
        assert isinstance(await hook(context(vendor_id="v-7")), Landed)


@pytest.mark.parametrize("order", ["", ".", ".."])
async def test_an_argument_does_not_lead_to_another_address(order: str) -> None:
    """What the model gave stays one part of the path."""
    with OrderService() as service:
        hook = recipes.get(service.url + "/orders/{order}", settled_after_s=0)
        assert isinstance(await hook(context(), order=order), Unsure)
        assert service.asked == []
        assert await hook(context(), order="../a?b=c#d") == NotLanded()
        assert [one.path for one in service.asked] == ["/orders/..%2Fa%3Fb%3Dc%23d"]


async def test_functions_can_take_the_place_of_texts() -> None:
    """They have the tool's parameters, with the context first if they want it."""
    with OrderService() as service:
        service.add({"reference": "k1-7", "cents": 500})
        hook = recipes.find(
            lambda order: f"{service.url}/orders",
            where=lambda ctx, order, **_: {"reference": f"{ctx.key}-{order}"},
            result=lambda found: found["cents"],
            settled_after_s=0,
        )

        @tool(side_effects="mutate", verify=hook)
        def pay(order: int, cents: int) -> None: ...

        assert await hook(context(), order=7, cents=500) == Landed(500)
        assert await hook(context(), order=8, cents=500) == NotLanded()


async def test_an_argument_with_a_name_of_our_own_is_not_confused_with_it() -> None:
    """`{request[key]}` of a tool with a parameter `request` could mean either."""
    hook = recipes.get("http://127.0.0.1/{request[key]}", settled_after_s=0)
    found = await hook(context(), request={"key": "mine"})
    assert isinstance(found, Unsure)
    assert "use a function" in found.why


def test_a_recipe_works_without_an_event_loop() -> None:
    """As for any other hook."""
    with OrderService() as service, holdfast.blocking.open_store("memory:") as store:

        @tool(
            side_effects="mutate",
            verify=recipes.find(f"{service.url}/orders", where={"reference": "{ctx.key}"}, settled_after_s=0),
        )
        def order(ctx: ToolContext[Any]) -> str:
            service.add({"reference": ctx.key})
            raise ConnectionError("no answer")

        with store.session("s") as session:
            result = holdfast.blocking.Registry([order]).dispatch("order", {}, session=session)
        assert result.status == "completed"
        assert len(service.orders) == 1


# -- services that speak JSON ----------------------------------------------------------------------------


async def ask(on_get: Callable[[Asked], Answer | None], **options: Any) -> Any:
    """What `find` says of a service that answers like this."""
    with OrderService(on_get) as service:
        hook = recipes.find(service.url + "/orders", {"reference": "{ctx.key}"}, settled_after_s=0, **options)
        return await hook(context())


MINE, OTHER = {"reference": "k1", "id": 1}, {"reference": "other", "id": 2}


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ([OTHER, MINE], {}),
        ({"data": [MINE], "count": 1, "next": None}, {}),
        ({"result": {"orders": [MINE]}, "tags": []}, {"items": "result.orders"}),
    ],
)
async def test_the_item_is_found_in_every_usual_form(body: Any, options: Any) -> None:
    """A list, an object with one list, or a list with a name. A service may ignore the query."""
    assert await ask(lambda _: Answer(body), **options) == Landed(MINE)


@pytest.mark.parametrize(
    ("body", "options", "why"),
    [
        ({"a": [], "b": []}, {}, r"has 2 lists: say with items="),
        ({"a": 1}, {}, "has 0 lists"),
        ("text", {}, "has 0 lists"),
        ([], {"items": "data"}, "has no list 'data'"),
        ([OTHER, {"ref": "k1"}], {}, "has no field 'reference'"),
        ([["k1"]], {}, "has no field 'reference'"),
        ([MINE, {**MINE, "id": 3}], {}, "2 items of .* match"),
        ({"data": [OTHER], "has_more": True}, {}, r"more pages than were read \(has_more\)"),
        ({"data": [OTHER], "nextPageToken": "t"}, {}, "nextPageToken"),
        ({"data": [OTHER], "paging": {"next_cursor": "t"}}, {}, "next_cursor"),
        ({"data": [OTHER], "meta": {"total": 2}}, {}, "total"),
        ({"data": [], "next": "https://elsewhere.example/orders?page=2"}, {}, "at another host"),
        (b"<html>", {}, "not JSON"),
    ],
)
async def test_an_answer_that_does_not_say_it_clearly_is_unsure(body: Any, options: Any, why: str) -> None:
    """An item that is not on this page may be on the next one, or have its key under another name."""
    found = await ask(lambda _: Answer(body), **options)
    assert isinstance(found, Unsure)
    assert re.search(why, found.why), found.why


@pytest.mark.parametrize("status", [204, 302, 400, 401, 404, 410, 429, 500, 503])
async def test_an_error_of_the_service_is_unsure(status: int) -> None:
    """It never means that the effect did not happen."""
    found = await ask(lambda _: Answer(b"" if status == 204 else [], status, {"Location": "/login"}))
    assert isinstance(found, Unsure)
    assert f"answered {status}" in found.why


@pytest.mark.parametrize("kind", ["dropped", "refused"])
@pytest.mark.parametrize("client", ["own", "httpx", "httpx-async", "requests"])
async def test_no_answer_is_unsure_and_shows_no_secret(kind: str, client: str) -> None:
    """The address is shown without the values of its query."""
    if kind == "dropped":
        with OrderService(lambda _: None) as service:
            found = await _ask_with(client, service.url)
    else:
        with refusing_url("") as url:
            found = await _ask_with(client, url)
    assert isinstance(found, Unsure)
    assert re.fullmatch(r"find: GET http://127\.0\.0\.1:\d+/orders\?token=…: \w+, no answer", found.why)


async def _ask_with(client: str, url: str) -> Any:
    with httpx.Client(trust_env=False) as blocking, requests.Session() as session:
        session.trust_env = False
        clients = {"own": None, "httpx": blocking, "requests": session}
        async with httpx.AsyncClient(trust_env=False, transport=AsyncTransport()) as asynchronous:
            hook = recipes.find(
                url + "/orders",
                where={"reference": "{ctx.key}"},
                query={"token": "s3cret"},
                client=clients.get(client, asynchronous),
                settled_after_s=0,
            )
            return await hook(context())


@pytest.mark.parametrize("client", ["own", "httpx", "httpx-async", "requests"])
async def test_every_client_asks_with_headers_of_the_callers_own(
    client: str, order_service: OrderService
) -> None:
    """Sync and async ones, also if a function of the context gives them."""
    order_service.add({"reference": "k1"})
    with httpx.Client(trust_env=False) as blocking, requests.Session() as session:
        session.trust_env = False
        clients: dict[str, Any] = {"own": None, "httpx": blocking, "requests": session}
        async with httpx.AsyncClient(trust_env=False) as asynchronous:
            given = clients.get(client, asynchronous)
            for one in (given, given and (lambda ctx: given)):
                hook = recipes.find(
                    order_service.url + "/orders",
                    where={"reference": "{ctx.key}"},
                    client=one,
                    headers={"Authorization": "Bearer s3cret"},
                    settled_after_s=0,
                )
                assert await hook(context()) == Landed(order_service.orders[0])
    assert {one.headers["Authorization"] for one in order_service.asked} == {"Bearer s3cret"}
    assert {one.query["reference"] for one in order_service.asked} == {"k1"}


@pytest.mark.parametrize("how", ["link", "next", "function"])
async def test_further_pages_are_read(how: str) -> None:
    """As the `Link` header or the answer says; the caller's own function can say it, too."""

    def page(asked: Asked) -> Answer:
        number = int(asked.query.get("page", "1"))
        items = [MINE if number == 3 else {**OTHER, "id": number}]
        following = f"/orders?page={number + 1}" if number < 3 else None
        match how:
            case "link":
                headers = {"Link": f'<{following}>; rel="next"'} if following else {}
                return Answer(items, headers=headers)
            case "next":
                return Answer({"results": items, "count": 3, "next": following})
        return Answer({"results": items, "cursor": following, "has_more": True})

    options = {"next_page": lambda body: body["cursor"]} if how == "function" else {}
    assert await ask(page, **options) == Landed(MINE)
    missing = await ask(lambda asked: _without_mine(page(asked)), **options)
    assert missing == NotLanded()


def _without_mine(answer: Answer) -> Answer:
    items = answer.body if isinstance(answer.body, list) else answer.body["results"]
    items[:] = [one for one in items if one != MINE] or [OTHER]
    return answer


async def test_a_list_without_end_is_unsure() -> None:
    """The effect may be anywhere in it."""
    found = await ask(lambda _: Answer({"items": [OTHER], "next": "/orders"}))
    assert isinstance(found, Unsure)
    assert "more than 20 pages" in found.why


@pytest.mark.parametrize(
    ("field", "value", "wanted", "same"),
    [
        ("cents", 500, "{cents}", True),
        ("cents", "500", "{cents}", True),
        ("cents", 500.0, "{cents}", True),
        ("cents", 5000, "{cents}", False),
        ("open", True, True, True),
        ("open", 1, True, False),
        ("note", None, None, True),
        ("note", "", None, False),
        ("to", {"name": "ann"}, "x", False),
    ],
)
async def test_fields_are_compared_as_a_person_would(field: str, value: Any, wanted: Any, same: bool) -> None:
    """A query has no types, and services answer with their own."""
    with OrderService(lambda _: Answer([{"metadata": {field: value}}])) as service:
        hook = recipes.find(
            service.url + "/orders", where={f"metadata.{field}": wanted}, query={}, settled_after_s=0
        )
        assert isinstance(await hook(context(), cents=500), Landed if same else NotLanded)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer({"id": 1, "cents": 500}), Landed({"id": 1, "cents": 500})),
        (Answer({"id": 1, "cents": 700}), Unsure),
        (Answer({"id": 1}), Unsure),
        (Answer({}, 404), NotLanded()),
        (Answer(b"", 404), NotLanded()),
        (Answer(b"<html>", 404, {"Content-Type": "text/html; charset=utf-8"}), Unsure),
        (Answer(b"<html>", 200, {"Content-Type": "text/html"}), Unsure),
        (Answer({}, 403), Unsure),
        (Answer({}, 500), Unsure),
    ],
)
async def test_an_address_says_what_became_of_the_effect(answer: Answer, expected: Any) -> None:
    """A page of a proxy says nothing, whatever its status."""
    with OrderService(lambda _: answer) as service:
        hook = recipes.get(service.url + "/charges/{ctx.key}", where={"cents": 500}, settled_after_s=0)
        found = await hook(context())
        assert isinstance(found, Unsure) if expected is Unsure else found == expected


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ([], NotLanded()),
        (None, NotLanded()),
        ([{"key": "a", "sent": False}], NotLanded()),
        ([{"key": "a", "sent": False}, {"key": "b"}], Landed),
        ([{"key": "b"}, {"key": "b"}], Landed),
        ([{"key": "a"}, {"key": "b"}], Unsure),
    ],
)
async def test_the_request_that_the_tool_made_is_asked_for_by_its_key(noted: Any, expected: Any) -> None:
    """Requests are on record before they are sent, so none on record is none sent."""
    with OrderService() as service:
        service.add({"what": "tea"}, key="b")
        hook = recipes.get(service.url + "/orders/{request[key]}", settled_after_s=0)
        found = await hook(context(requests=noted) if noted is not None else context())
        assert found == expected if isinstance(expected, NotLanded) else isinstance(found, expected)


# -- files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "expected"), [(b"hello", Landed), (None, NotLanded), (b"hel", Unsure), (b"", Unsure)]
)
async def test_a_file_is_compared_with_the_content_that_was_to_be_written(
    held: bytes | None, expected: Any, tmp_path: Path
) -> None:
    """Half of it may mean that it was being written."""
    if held is not None:
        (tmp_path / "a.txt").write_bytes(held)
    hook = recipes.file(str(tmp_path) + "/{name}.txt", content="{text}")
    assert isinstance(await hook(context(), name="a", text="hello"), expected)


@pytest.mark.parametrize(
    ("held", "expected"),
    [("new", Landed), ("old", NotLanded), (None, Unsure), ("other", Unsure)],
)
async def test_the_content_before_means_that_it_was_not_written(
    held: str | None, expected: Any, tmp_path: Path
) -> None:
    """The tool notes both digests before it writes."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    hook = recipes.file(str(path))
    assert await hook(context()) == NotLanded()  # It has not even noted what it is going to do.
    noted = recipes.before_writing(path, "new")
    path.unlink()
    if held is not None:
        path.write_text(held)
    assert isinstance(await hook(context(file=noted)), expected)
    assert isinstance(await hook(context(file="mine")), Unsure)


async def test_a_file_that_cannot_be_read_is_unsure(tmp_path: Path) -> None:
    """It may be there: a directory in its place, or a disk that is not mounted."""
    for path in (tmp_path, tmp_path / "gone" / "a.txt"):
        assert isinstance(await recipes.file(lambda path=path: path, content="x")(context()), Unsure)


# -- databases -------------------------------------------------------------------------------------------


async def find_row(connect: Any, query: str = "SELECT id, what FROM orders", parameters: Any = ()) -> Any:
    """What `row` says."""
    return await recipes.row(connect, query, parameters, settled_after_s=0)(context())


@pytest.fixture
def orders(tmp_path: Path) -> SqliteRow:
    """A table with one row."""
    world = SqliteRow(str(tmp_path))
    world.prepare()
    world.act(context(), "tea")
    return world


async def test_a_row_is_found_by_the_names_of_its_columns(orders: SqliteRow) -> None:
    """Also where the connection gives mappings of its own, or needs the context."""

    def with_rows(ctx: ToolContext[Any]) -> sqlite3.Connection:
        assert ctx.key == "k1"
        connection = orders.connect()
        connection.row_factory = sqlite3.Row
        return connection

    for connect in (orders.connect, with_rows, functools.partial(sqlite3.connect, orders.path)):
        assert await find_row(connect) == Landed({"id": 1, "what": "tea"})
        found = await find_row(connect, "SELECT 1 FROM orders WHERE reference = ?", ["{ctx.key}x"])
        assert found == NotLanded()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT 1 FROM gone", "no such table"),
        ("SELECT 1 UNION SELECT 2", "more than one row"),
        ("DELETE FROM orders", "has to be a SELECT"),
    ],
)
async def test_a_query_that_does_not_say_it_is_unsure(orders: SqliteRow, query: str, why: str) -> None:
    """And changes nothing."""
    found = await find_row(orders.connect, query)
    assert isinstance(found, Unsure)
    assert why in found.why
    assert orders.list_done() == ["tea"]


async def test_a_database_that_is_not_there_is_unsure_and_shows_no_password() -> None:
    """The error is that of the driver, without secrets."""

    def connect() -> Any:
        raise ConnectionError("cannot reach postgresql://ann:s3cret@db.example/shop")

    found = await find_row(connect)
    assert isinstance(found, Unsure)
    assert "cannot reach" in found.why
    assert "s3cret" not in found.why


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_async_connections_are_asked_as_well(
    orders: SqliteRow, postgres: str, schema: str, anyio_backend: str
) -> None:
    """Of aiosqlite and psycopg, made by a function, an async function, or a context manager."""
    made = await find_row(lambda: aiosqlite.connect(orders.path))
    assert made == Landed({"id": 1, "what": "tea"})
    world = PostgresRow(f"{postgres} {schema}")
    world.prepare()
    world.act(context(), "tea")
    options = f"-c search_path={schema}"

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(postgres, options=options)

    class Pool:
        async def __aenter__(self) -> Any:
            self.connection = await connect()
            return self.connection

        async def __aexit__(self, *error: object) -> None:
            await self.connection.close()

    for one in (connect, Pool, lambda: connect()):
        assert await find_row(one) == Landed({"id": 1, "what": "tea"})
        found = await find_row(one, "SELECT 1 FROM orders WHERE what = %s", ["coffee"])
        assert found == NotLanded()
        assert isinstance(await find_row(one, "SELECT 1 FROM gone"), Unsure)
    assert await find_row(lambda: psycopg.connect(postgres), "SELECT 1 AS one") == Landed({"one": 1})


# -- git -------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(git: None, tmp_path: Path) -> GitCommit:
    """A repository with a commit that is not ours."""
    world = GitCommit(str(tmp_path / "site"))
    world.prepare()
    world.act(context("other"), "first")
    return world


async def test_a_commit_is_found_wherever_it_is(repository: GitCommit) -> None:
    """On another branch, amended, or reset away: it was made."""
    hook = recipes.commit(lambda: repository.folder, settled_after_s=0)
    assert await hook(context()) == NotLanded()
    repository.git("checkout", "--quiet", "-b", "work")
    repository.act(context(), "tea")
    made = repository.git("rev-parse", "HEAD").strip()
    repository.git("checkout", "--quiet", "main")
    assert await hook(context()) == Landed({"commit": made})
    repository.git("branch", "--quiet", "-D", "work")
    assert await hook(context()) == Landed({"commit": made})


async def test_git_at_work_is_unsure(repository: GitCommit) -> None:
    """It outlives the process that started it."""
    hook = recipes.commit(repository.folder, settled_after_s=0)
    lock = Path(repository.folder) / ".git" / "index.lock"
    lock.touch()
    found = await hook(context())
    assert isinstance(found, Unsure)
    assert "index.lock" in found.why
    assert isinstance(await hook(context("other")), Landed)


async def test_a_repository_that_is_not_there_is_unsure(
    git: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what git says; the same if there is no git."""
    found = await recipes.commit(str(tmp_path / "gone"), settled_after_s=0)(context())
    assert isinstance(found, Unsure)
    assert "failed: fatal:" in found.why
    monkeypatch.setenv("PATH", "")
    found = await recipes.commit(str(tmp_path), settled_after_s=0)(context())
    assert isinstance(found, Unsure)
    assert "git cannot be asked" in found.why


# -- mail ------------------------------------------------------------------------------------------------


async def test_a_mail_is_found_by_its_id_alone(mail_port: int) -> None:
    """Not one that answers it, and not one of another call."""
    world = SentMail(str(mail_port))
    world.clear()
    hook = recipes.mail(lambda: open_mailbox(mail_port), domain=DOMAIN, settled_after_s=0)
    with open_mailbox(mail_port) as box:
        wanted = recipes.message_id(context(), DOMAIN)
        box.append('"Sent"', "", "", f"Message-ID: <x@y>\r\nIn-Reply-To: {wanted}\r\n\r\n{wanted}".encode())
    world.act(context("k12"), "tea")
    assert await hook(context()) == NotLanded()
    world.act(context(), "tea")
    assert await hook(context()) == Landed({"message_id": wanted, "folder": "Sent"})


@pytest.mark.parametrize("problem", ["password", "folder", "server"])
async def test_a_mailbox_that_cannot_be_searched_is_unsure(mail_port: int, problem: str) -> None:
    """And the password is not in the text."""
    with refusing_url() as url:
        port = int(url.split(":")[2].partition("/")[0]) if problem == "server" else mail_port
        hook = recipes.mail(
            lambda ctx: open_mailbox(port, "wr0ng" if problem == "password" else "s3cret"),
            domain=DOMAIN,
            folders="Nowhere" if problem == "folder" else "Sent",
            settled_after_s=0,
        )
        found = await hook(context())
    assert isinstance(found, Unsure)
    assert not re.search("wr0ng|s3cret", found.why)

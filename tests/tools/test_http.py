"""Requests in tools: each has a key that is the same on every attempt, and is on record before it is sent."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest
import requests
from urllib3.util.retry import Retry as UrllibRetry

import holdfast.blocking
from holdfast import NotDone, Registry, Store, ToolContext, tool
from holdfast.cli.entry_text import describe, list_notes
from holdfast.cli.timeline import Timeline
from holdfast.core.entries import ToolIssued
from holdfast.errors import Closed
from holdfast.http import Adapter, AsyncTransport, Transport
from holdfast.tools import Result, Retry
from tests.crash.fork_server import Warm
from tests.tools import http_process
from tests.tools.example_tools import Url, bodies, call, come_true, die, opened, reply
from tests.tools.http_services import (
    KINDS,
    TIMEOUT_S,
    Service,
    make_body,
    make_client,
    make_tool,
    refusing_url,
    requests_of,
)

SOURCE = Path(__file__).resolve().parents[2] / "src"
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
AGAIN = Retry(attempts=2, backoff_s=0)


async def run(act: Any, url: Url = "memory:") -> tuple[Result, dict[str, Any]]:
    """Dispatch one call of the tool: its result, and what is noted with it."""
    async with opened(url) as (_, session):
        result = await Registry([act]).dispatch(act.name, {}, session=session)
        (*_, row) = session.state.facts.effects.rows.values()
        return result, row.notes


# -- keys and notes --------------------------------------------------------------------------------------


@EVERY_KIND
async def test_a_request_has_a_key_and_is_noted_with_its_answer(kind: str, store_url: Url) -> None:
    """With every library, in an event loop or in a thread, in every store."""
    with Service(201) as service:
        result, notes = await run(make_tool(kind, ("POST", service.url())), store_url)
        assert result.value == [201], result.content
        (key,) = service.keys
        noted = {"method": "POST", "url": service.url(), "key": key, "attempt": 1, "status": 201}
        assert requests_of(notes) == [noted]
        assert notes["requests"][0]["at"] <= notes["requests"][0]["ended_at"]
    async with opened(store_url) as (store, session):
        (row,) = session.state.facts.effects.rows.values()
        assert row.notes == notes  # As another process reads it.
        entries = [one async for one in store.tail("s", follow=False)]
        timeline = Timeline.of(entries, session.state.facts.effects.rows, held=True)
    assert [moment.notes for moment in timeline.moments if moment.kind == "tool"] == [notes]
    told = [describe(one) for one in entries if one.kind == "tool.annotated"]
    assert told == [f"request: POST {service.url()}", "request: number 0: status 201"]
    assert list_notes(notes)[0].startswith(f"POST {service.url()}: status 201, ")


def test_what_became_of_a_request_is_told_in_words() -> None:
    """As `holdfast pending` and `holdfast show` print it."""
    asked = {"method": "POST", "url": "http://bank/pay"}
    answers: tuple[dict[str, Any], ...]
    answers = ({"status": 503}, {"error": "ReadTimeout"}, {"error": "ConnectError", "sent": False}, {})
    assert list_notes({"requests": [{**asked, **answer} for answer in answers]}) == [
        "POST http://bank/pay: status 503",
        "POST http://bank/pay: ReadTimeout, no answer",
        "POST http://bank/pay: ConnectError, not sent",
        "POST http://bank/pay: no answer",
    ]


@EVERY_KIND
async def test_each_request_of_a_body_has_its_own_key_the_same_on_the_next_attempt(kind: str) -> None:
    """So a service that deduplicates by key does each of them once, however often the body is run."""
    with Service(200, "drop", 200, deduplicates=True) as service:
        steps = [("POST", service.url("/a")), ("POST", service.url("/a")), ("PUT", service.url("/a"))]
        result, notes = await run(make_tool(kind, *steps, idempotent=True, retry=AGAIN))
        assert result.status == "completed", result.content
        first, second, *again = service.keys
        assert again[:2] == [first, second]
        assert len({first, second, again[2]}) == 3
        assert service.done == ["/a"] * 3
    noted = [(one["attempt"], one["key"], one.get("status")) for one in notes["requests"]]
    assert noted == [
        (1, first, 200),
        (1, second, None),
        (2, first, 200),
        (2, second, 200),
        (2, again[2], 200),
    ]


async def test_calls_that_are_not_the_same_have_other_keys() -> None:
    """The keys of requests follow from the key of the effect."""
    with Service() as service:

        @tool(side_effects={"mutate"})
        def act(order: str) -> None:
            with make_client("requests") as client:
                client.post(service.url())

        async with opened("memory:") as (_, session):
            for order in ("1", "2", "1"):
                await Registry([act]).dispatch("act", {"order": order}, session=session)
        assert len(service.keys) == len(set(service.keys)) == 2


@EVERY_KIND
async def test_a_safe_request_is_sent_as_it_is(kind: str) -> None:
    """Reading needs no key and no note."""
    with Service() as service:
        _, notes = await run(make_tool(kind, ("GET", service.url())))
        assert [one.key for one in service.received] == [None]
    assert notes == {}


@EVERY_KIND
async def test_a_key_of_the_callers_own_is_kept_and_noted(kind: str) -> None:
    """The tool may know better which requests are the same."""
    with Service() as service:
        headers = {"idempotency-key": "mine"}
        _, notes = await run(make_tool(kind, ("POST", service.url()), transport={"headers": headers}))
        assert service.keys == ["mine"]
    assert notes["requests"][0]["key"] == "mine"


@EVERY_KIND
async def test_the_key_may_have_another_header(kind: str) -> None:
    """Services disagree on its name."""
    with Service() as service:
        act = make_tool(kind, ("POST", service.url()), transport={"header": "X-Request-Id"})
        _, notes = await run(act)
        assert service.keys == [None]
    assert notes["requests"][0]["key"]


@EVERY_KIND
@pytest.mark.parametrize("side_effects", [(), {"read"}])
async def test_a_tool_without_side_effects_sends_its_requests_as_they_are(
    kind: str, side_effects: Any
) -> None:
    """Some services are queried by POST."""
    with Service() as service:
        steps = [("POST", service.url()), ("POST", service.url())]
        result, notes = await run(make_tool(kind, *steps, side_effects=side_effects))
        assert result.value == [200, 200]
        assert service.keys == [None, None]
    assert notes == {}


async def test_a_tool_without_side_effects_inside_of_one_with_some_has_no_keys() -> None:
    """What counts is the tool that makes the request."""
    with Service() as service:
        look = tool(side_effects={"read"}, name="look")(make_body("httpx-async", ("POST", service.url())))

        @tool(side_effects={"mutate"})
        async def act(ctx: ToolContext[Any]) -> None:
            await Registry([look]).dispatch("look", {}, session=ctx.session)

        await run(act)
        assert service.keys == [None]


@EVERY_KIND
async def test_outside_of_tools_nothing_is_done(kind: str) -> None:
    """One client can serve the whole program."""
    with Service() as service:
        body = make_body(kind, ("POST", service.url()))
        found = await body() if kind == "httpx-async" else await anyio.to_thread.run_sync(body)
        assert (found, service.keys) == ([200], [None])


async def test_an_undo_hook_has_keys_of_its_own() -> None:
    """It is an effect, too."""
    with Service() as service:
        options = {"undo": make_body("httpx", ("DELETE", service.url()))}
        registry = Registry([make_tool("httpx", ("POST", service.url()), **options)])
        async with opened("memory:") as (_, session):
            before = await session.checkpoint()
            await registry.dispatch("act", {}, session=session)
            rewound = await session.rewind(version=before, undo=True, registry=registry)
            assert [one.status for one in rewound.undone] == ["undone"]
            made, undone = session.state.facts.effects.rows.values()
        assert [one.method for one in service.received] == ["POST", "DELETE"]
        assert service.keys == [made.notes["requests"][0]["key"], undone.notes["requests"][0]["key"]]
        assert None not in service.keys


async def test_a_request_of_a_task_that_outlives_the_body_is_sent_as_it_is() -> None:
    """The call has its outcome by then."""
    ended = anyio.Event()
    with Service() as service:
        async with anyio.create_task_group() as tasks:

            async def later() -> None:
                await ended.wait()
                await make_body("httpx-async", ("POST", service.url()))()

            @tool(side_effects={"mutate"})
            async def act() -> None:
                tasks.start_soon(later)

            _, notes = await run(act)
            ended.set()
        assert service.keys == [None]
    assert notes == {}


async def test_a_note_of_the_tool_under_the_same_name_does_no_harm() -> None:
    """The name is taken; the record stays readable."""
    with Service() as service:

        @tool(side_effects={"mutate"})
        async def act(ctx: ToolContext[Any]) -> None:
            await ctx.annotate(requests="mine", other=1)
            async with make_client("httpx-async") as client:
                await client.post(service.url())
                await ctx.annotate(requests=[1])
                await client.post(service.url())

        result, notes = await run(act)
        assert result.status == "completed"
    assert notes["other"] == 1
    assert [one if one == 1 else one["status"] for one in notes["requests"]] == [1, 200]


# -- requests that are sent again ------------------------------------------------------------------------


async def test_retries_of_urllib3_keep_the_key() -> None:
    """The service sees the same request again."""
    retries = UrllibRetry(2, backoff_factor=0, allowed_methods=None, status_forcelist=[503])
    with Service(503, 200, deduplicates=True) as service:
        act = make_tool("requests", ("POST", service.url()), transport={"max_retries": retries})
        result, notes = await run(act)
        assert result.value == [200]
        assert len(service.keys) == 2
        assert len(set(service.keys)) == 1
    assert len(notes["requests"]) == 1


async def test_a_request_object_that_is_sent_again_in_the_body_keeps_its_key() -> None:
    """As a transport around this one does it, to try again."""

    class Twice(httpx.BaseTransport):
        def __init__(self) -> None:
            self.inner = Transport()

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            self.inner.handle_request(request).close()
            return self.inner.handle_request(request)

        def close(self) -> None:
            self.inner.close()

    with Service() as service:

        @tool(side_effects={"mutate"})
        def act() -> None:
            with httpx.Client(transport=Twice(), timeout=TIMEOUT_S) as client:
                client.post(service.url())
                client.post(service.url())

        await run(act)
        first, again, other, other_again = service.keys
        assert (first, other) == (again, other_again)
        assert first != other


class Refusing:
    """A service where some of the connections are refused, by their number."""

    def __init__(self, *refused: int) -> None:
        self.keys: list[str] = []
        self._refused = refused
        self.transport = Transport(httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        if len(self.keys) in self._refused:
            raise httpx.ConnectError("refused")
        return httpx.Response(200)

    async def take(self, *contents: str | None, outer: httpx.BaseTransport | None = None) -> list[str]:
        """The keys of requests with these contents (None: a stream), in a tool."""

        @tool(side_effects={"mutate"})
        def act() -> None:
            with httpx.Client(transport=outer or self.transport) as client:
                for content in contents:
                    sent: Any = iter([b"stream"]) if content is None else content
                    with suppress(httpx.ConnectError):
                        client.post("http://127.0.0.1/pay", content=sent)

        result, _ = await run(act)
        assert result.status == "completed", result.content
        return self.keys


async def test_a_body_that_tries_again_after_a_refused_connection_keeps_the_key() -> None:
    """On the next attempt there may be no refused connection, and the request has the same key then."""
    refused, first, other = await Refusing(1).take("a", "a", "a")
    assert refused == first != other


@pytest.mark.parametrize("contents", [("a", "b"), (None, None)])
async def test_another_request_after_a_refused_connection_has_another_key(
    contents: tuple[str | None, ...],
) -> None:
    """A body may give that one up and go on: the next one is not the same, as far as can be known."""
    keys = await Refusing(1).take(*contents)
    assert len(set(keys)) == 2


async def test_a_refused_request_object_that_is_sent_again_keeps_its_key_for_itself() -> None:
    """A transport around this one tries it again; the next request has another key."""
    service = Refusing(1)

    class Again(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            try:
                return service.transport.handle_request(request)
            except httpx.ConnectError:
                return service.transport.handle_request(request)

    refused, first, other = await service.take("a", "a", outer=Again())
    assert refused == first != other


@EVERY_KIND
async def test_a_redirected_request_keeps_its_key(kind: str) -> None:
    """It is the same request, at another address."""
    with Service(307, 200) as service:

        def follow(client: Any) -> None:
            if kind != "requests":
                client.follow_redirects = True

        if kind == "httpx-async":

            async def act_async() -> None:
                async with make_client(kind) as client:
                    follow(client)
                    await client.post(service.url())

            body: Any = act_async
        else:

            def act() -> None:
                with make_client(kind) as client:
                    follow(client)
                    client.post(service.url())

            body = act
        _, notes = await run(tool(side_effects={"mutate"}, name="act")(body))
        assert [one.path for one in service.received] == ["/pay", "/moved"]
        assert len(set(service.keys)) == 1
        assert service.keys[0] is not None
    assert [one["status"] for one in notes["requests"]] == [307, 200]


@pytest.mark.parametrize("kind", ["httpx", "requests"])
async def test_a_request_object_that_is_used_by_another_call_gets_another_key(kind: str) -> None:
    """And none outside of tools: a key that is kept would let the service drop the request."""
    with Service() as service, make_client(kind) as client:
        if kind == "httpx":
            request: Any = client.build_request("POST", service.url())
        else:
            request = requests.Request("POST", service.url()).prepare()

        @tool(side_effects={"mutate"}, scope="call")
        def act() -> None:
            client.send(request)

        await run(act)
        await run(act)
        client.send(request)
        one, other, outside = service.keys
        assert outside is None
        assert None not in (one, other)
        assert one != other


async def test_requests_at_once_to_different_addresses_keep_their_keys() -> None:
    """Whichever is first: the place of a request counts those to its own address."""
    with Service(200, "drop", 200) as service:
        keys: dict[str, list[str | None]] = {"/a": [], "/b": []}

        @tool(side_effects={"mutate"}, idempotent=True, retry=AGAIN)
        async def act(ctx: ToolContext[Any]) -> None:
            first, second = ("/a", "/b") if ctx.attempt == 1 else ("/b", "/a")
            began = anyio.Event()
            async with make_client("httpx-async") as client, anyio.create_task_group() as tasks:

                async def send_first() -> None:
                    await client.post(service.url(first))
                    began.set()

                tasks.start_soon(send_first)
                await began.wait()
                await client.post(service.url(second) + "?nonce=" + str(ctx.attempt))

        result, _ = await run(act)
        assert result.status == "completed", result.content
        for one in service.received:
            keys[one.path.partition("?")[0]].append(one.key)
    assert all(len(found) == 2 and len(set(found)) == 1 for found in keys.values())
    assert keys["/a"] != keys["/b"]


# -- requests without an answer --------------------------------------------------------------------------


@EVERY_KIND
async def test_a_dropped_answer_leaves_a_doubt_that_shows_the_request(kind: str) -> None:
    """The service did it, and the record says what was asked of which service."""
    with Service("drop") as service:
        async with opened("memory:") as (store, session):
            act = make_tool(kind, ("POST", service.url()))
            result = await Registry([act]).dispatch("act", {}, session=session)
            assert result.status == "in_doubt"
            await session.flush()
            (doubt,) = [one async for one in store.in_doubt()]
        (noted,) = requests_of(doubt.effect.notes)
        assert (noted["method"], noted["url"], noted["key"]) == ("POST", service.url(), service.keys[0])
        assert "status" not in noted
        assert noted["error"] in ("RemoteProtocolError", "ConnectionError")
        assert service.done == ["/pay"]


@EVERY_KIND
async def test_an_idempotent_tool_tries_again_after_a_dropped_answer(kind: str) -> None:
    """With the same key, so the service does it once."""
    with Service("drop", 200, deduplicates=True) as service:
        act = make_tool(kind, ("POST", service.url()), idempotent=True, retry=AGAIN)
        result, _ = await run(act)
        assert result.value == [200]
        assert len(service.keys) == 2
        assert len(set(service.keys)) == 1
        assert service.done == ["/pay"]


# -- processes that are killed ---------------------------------------------------------------------------


def kill_at_the_service(warm: Warm, store_url: str, kind: str, service: Service, how: str) -> list[str]:
    """Kill a process when the service has done what it asked for, before it has the answer; then go on in
    another process. The statuses of its results."""
    arrived, killed = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        assert killed.wait(TIMEOUT_S)

    service.on_done = wait
    with warm.child(http_process.pay, store_url, kind, service.url(), how) as child:
        try:
            assert arrived.wait(TIMEOUT_S)
            child.kill()
            child.wait()
        finally:
            killed.set()
            service.on_done = lambda: None
    found: list[str] = warm.call(http_process.resume, store_url, kind, service.url(), how)
    return found


@EVERY_KIND
def test_a_killed_tool_of_a_service_that_knows_keys_has_its_effect_once(
    kind: str, loaded_warm: Warm, quick_path: Path
) -> None:
    """The next process sends the same key, and the service gives the first answer again."""
    with Service(deduplicates=True) as service:
        found = kill_at_the_service(loaded_warm, f"sqlite:{quick_path}/store.db", kind, service, "idempotent")
        assert found == ["completed"]
        assert len(service.keys) == 2
        assert len(set(service.keys)) == 1
        assert service.keys[0] is not None
        assert service.done == ["/pay"]


@EVERY_KIND
def test_a_killed_tool_of_any_other_service_is_in_doubt_and_shows_the_request(
    kind: str, loaded_warm: Warm, quick_path: Path
) -> None:
    """It was on disk before it was sent, so whoever decides knows what was asked, of which service."""
    url = f"sqlite:{quick_path}/store.db"
    with Service() as service:
        assert kill_at_the_service(loaded_warm, url, kind, service, "nothing") == ["in_doubt"]
        assert len(service.keys) == 1
        with holdfast.blocking.open_store(url) as store:
            (doubt,) = store.in_doubt()
        expected = {"method": "POST", "url": service.url(), "key": service.keys[0], "attempt": 1}
        assert requests_of(doubt.effect.notes) == [expected]


@EVERY_KIND
@pytest.mark.parametrize("how", ["idempotent", "nothing"])
def test_a_process_that_dies_between_a_dropped_answer_and_its_record(
    kind: str, how: str, loaded_warm: Warm, quick_path: Path
) -> None:
    """The tool knew that there was no answer, and the journal does not. With a key, it is asked again and
    done once; without, it is in doubt and shows the request, and does not say that it was not sent."""
    url = f"sqlite:{quick_path}/store.db"
    with Service("drop", 200, deduplicates=True) as service:
        with loaded_warm.child(http_process.pay, url, kind, service.url(), how, dies=True) as child:
            assert child.outcome() is None, "it was not killed"
        assert service.done == ["/pay"]
        found = loaded_warm.call(http_process.resume, url, kind, service.url(), how)
        assert service.done == ["/pay"]
        if how == "idempotent":
            assert found == ["completed"]
            assert len(service.keys) == 2
            assert len(set(service.keys)) == 1
            return
        assert found == ["in_doubt"]
        assert len(service.keys) == 1
    with holdfast.blocking.open_store(url) as store:
        (doubt,) = store.in_doubt()
    (noted,) = requests_of(doubt.effect.notes)
    assert (noted["method"], noted["url"], noted["key"]) == ("POST", service.url(), service.keys[0])
    assert not {"status", "sent"} & noted.keys()


@EVERY_KIND
def test_a_verify_hook_asks_the_service_for_the_request_that_had_no_answer(
    kind: str, loaded_warm: Warm, quick_path: Path
) -> None:
    """Its context has the notes of the process that was killed."""
    with Service() as service:
        found = kill_at_the_service(loaded_warm, f"sqlite:{quick_path}/store.db", kind, service, "verify")
        assert found == ["completed"]
        assert service.done == ["/pay"]


# -- requests that were not sent -------------------------------------------------------------------------


@EVERY_KIND
async def test_a_refused_connection_is_a_failure_and_not_a_doubt(kind: str) -> None:
    """Nothing was done, so the tool may be tried again, as often as its policy says."""
    with refusing_url() as url:
        async with opened("memory:") as (store, session):
            act = make_tool(kind, ("POST", url), retry=Retry(attempts=3, backoff_s=0))
            result = await Registry([act]).dispatch("act", {}, session=session)
            assert result.status == "failed"
            assert "Connect" in result.content  # The library's own error.
            assert [one.attempt for one in await bodies(store, session, ToolIssued)] == [1, 2, 3]
            (*_, row) = session.state.facts.effects.rows.values()
    assert [one["sent"] for one in row.notes["requests"]] == [False] * 3


@EVERY_KIND
async def test_a_name_that_is_not_found_is_a_failure(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There was no address to send it to."""
    find = socket.getaddrinfo

    def fail(host: Any, *args: Any, **options: Any) -> Any:
        if host in ("nowhere.invalid", b"nowhere.invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return find(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    result, notes = await run(make_tool(kind, ("POST", "http://nowhere.invalid/pay")))
    assert result.status == "failed"
    assert notes["requests"][0]["sent"] is False


@EVERY_KIND
async def test_a_refused_connection_after_another_request_leaves_a_doubt(kind: str) -> None:
    """The other one was sent, whatever became of this one."""
    with Service() as service, refusing_url() as url:
        result, _ = await run(make_tool(kind, ("POST", service.url()), ("POST", url)))
        assert result.status == "in_doubt"
        found, _ = await run(make_tool(kind, ("GET", service.url()), ("POST", url)))
        assert found.status == "failed"  # Reading changed nothing.


@EVERY_KIND
async def test_a_doubt_of_an_earlier_attempt_stays(kind: str) -> None:
    """That this attempt sent nothing says nothing about the first one."""
    steps: list[tuple[str, str]] = []
    with Service("drop") as service, refusing_url() as url:
        steps = [("POST", service.url())]

        def send() -> Any:
            with make_client("httpx" if kind == "httpx-async" else kind) as client:
                client.request(*steps.pop(0))

        steps.append(("POST", url))
        result, _ = await run(tool(side_effects={"mutate"}, idempotent=True, retry=AGAIN, name="act")(send))
        assert result.status == "in_doubt"
        assert service.done == ["/pay"]


class Busy(Exception):
    """An error of a tool's own."""


@pytest.mark.parametrize(
    ("how", "status"), [("same", "failed"), ("from", "failed"), ("other", "in_doubt"), ("group", "failed")]
)
async def test_only_a_body_that_ends_with_that_error_has_done_nothing(how: str, status: str) -> None:
    """A body that handles it, and fails for another reason, may have done something else by then."""
    with refusing_url() as url:

        @tool(side_effects={"mutate"})
        async def act() -> None:
            async with make_client("httpx-async") as client:
                errors: list[Exception] = []
                for path in ("/1", "/2"):
                    try:
                        await client.post(url + path)
                    except httpx.ConnectError as error:
                        errors.append(error)
            if how == "same":
                raise errors[0]
            if how == "from":
                raise Busy from errors[1]
            if how == "group":
                raise ExceptionGroup("both", errors)
            raise Busy

        result, _ = await run(act)
        assert result.status == status, result.content


@EVERY_KIND
async def test_a_tool_that_acts_by_other_means_can_switch_that_off(kind: str) -> None:
    """It has written a file, say, before it makes its request."""
    with refusing_url() as url:
        act = make_tool(kind, ("POST", url), transport={"unsent_is_not_done": False})
        result, notes = await run(act)
        assert result.status == "in_doubt"
    assert notes["requests"][0]["sent"] is False


async def test_a_transport_of_another_kind_is_not_believed_unless_the_tool_says_so() -> None:
    """It may have sent the request, and only the second time found no connection."""

    class SecondTime(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused")

    url = "http://127.0.0.1/pay"
    doubted, _ = await run(make_tool("httpx", ("POST", url), transport={"inner": SecondTime()}))
    assert doubted.status == "in_doubt"
    options = {"inner": SecondTime(), "unsent_is_not_done": True}
    believed, _ = await run(make_tool("httpx", ("POST", url), transport=options))
    assert believed.status == "failed"


@pytest.mark.parametrize(("methods", "status"), [(None, "in_doubt"), (["GET"], "failed")])
async def test_retries_of_urllib3_that_may_follow_a_sent_request_are_not_believed(
    methods: list[str] | None, status: str
) -> None:
    """Its last error says nothing of the first one."""
    retries = UrllibRetry(1, backoff_factor=0, allowed_methods=methods)
    with refusing_url() as url:
        result, _ = await run(make_tool("requests", ("POST", url), transport={"max_retries": retries}))
        assert result.status == status


@pytest.mark.parametrize("kind", ["httpx", "requests"])
async def test_a_client_that_would_block_the_event_loop_is_refused(kind: str) -> None:
    """A request is not sent before it is on disk, and the loop could not write it."""
    with Service() as service:

        @tool(side_effects={"mutate"})
        async def act() -> None:
            with make_client(kind) as client:
                client.post(service.url())

        result, _ = await run(act)
        assert result.status == "failed"
        assert "declare the tool with `def`" in result.content
        assert service.received == []


async def test_a_blocking_client_in_a_thread_of_an_async_body_is_fine() -> None:
    """Its context has come along."""
    with Service() as service:

        @tool(side_effects={"mutate"})
        async def act() -> list[int]:
            found: list[int] = await anyio.to_thread.run_sync(make_body("requests", ("POST", service.url())))
            return found

        result, notes = await run(act)
        assert result.value == [200]
        assert service.keys == [notes["requests"][0]["key"]]


async def test_an_event_loop_of_the_bodys_own_is_fine() -> None:
    """The note is made in the session's."""
    with Service() as service:

        @tool(side_effects={"mutate"})
        def act() -> Any:
            return anyio.run(make_body("httpx-async", ("POST", service.url())))

        result, notes = await run(act)
        assert result.value == [200], result.content
        assert service.keys == [notes["requests"][0]["key"]]
        assert notes["requests"][0]["status"] == 200


@EVERY_KIND
async def test_a_process_that_has_lost_its_session_sends_nothing(kind: str, store_url: Url) -> None:
    """Another process decides about the call: a body that wakes up late must not act as well."""
    with Service() as service:

        @tool(side_effects={"mutate"}, name="act")
        async def act(ctx: ToolContext[Store]) -> None:
            die(ctx.deps)
            body = make_body(kind, ("POST", service.url()))
            await (body() if kind == "httpx-async" else anyio.to_thread.run_sync(body))

        async with opened(store_url) as (store, session):
            with pytest.raises(Closed):
                await Registry([act]).dispatch("act", {}, session=session, deps=store)
        assert service.received == []


async def test_a_body_that_was_left_behind_still_has_keys() -> None:
    """It outlived its timeout; what it does is on record all the same."""
    go_on = threading.Event()
    with Service() as service:
        body = make_body("requests", ("POST", service.url()))

        @tool(side_effects={"mutate"}, timeout_s=0.01)
        def act() -> Any:
            assert go_on.wait(TIMEOUT_S)
            return body()

        async with opened("memory:") as (_, session):
            result = await Registry([act]).dispatch("act", {}, session=session)
            assert result.status == "in_doubt"
            (row,) = session.state.facts.effects.rows.values()
            go_on.set()
            await come_true(lambda: row.status == "completed")
            assert requests_of(row.notes)[0]["key"] == service.keys[0]
            assert service.keys[0] is not None


# -- what is not noted -----------------------------------------------------------------------------------


@EVERY_KIND
async def test_no_secret_of_an_address_is_noted(kind: str, store_url: Url) -> None:
    """Nor headers, nor what was sent: only where it went."""
    token = "aB3" * 9
    with Service() as service:
        host = service.url("").removeprefix("http://")
        url = f"http://ann:zqxj1@{host}/hooks/{token}/orders/42?sig=zqxj2&zqxj3&page=zqxj4#zqxj5"
        options = {"headers": {"Authorization": "Bearer zqxj6"}}
        _, notes = await run(make_tool(kind, ("POST", url), transport=options), store_url)
    assert notes["requests"][0]["url"] == f"http://{host}/hooks/…/orders/42?sig=…&…&page=…"
    assert "zqxj" not in str(notes)
    assert "ann" not in str(notes)


# -- without a model, without the libraries --------------------------------------------------------------


def test_tools_of_code_without_an_event_loop_have_keys() -> None:
    """The session's event loop is in another thread."""
    with Service() as service:
        registry = holdfast.blocking.Registry([make_tool("requests", ("POST", service.url()))])
        with holdfast.blocking.open_store("memory:") as store, store.session("s") as session:
            assert registry.dispatch("act", {}, session=session).value == [200]
            (row,) = session.left_behind()
        assert [row.notes["requests"][0]["key"]] == service.keys


async def test_the_calls_of_one_step_have_keys_of_their_own() -> None:
    """They run at once, each in a context of its own."""
    with Service() as service:
        acts = [
            tool(side_effects={"mutate"}, name=f"act_{kind[-5:]}")(make_body(kind, ("POST", service.url())))
            for kind in KINDS
        ]
        async with opened("memory:") as (_, session):
            await reply(session, *(call(one.name, id=one.name) for one in acts))
            results = await Registry(acts).dispatch_step(session)
            assert [one.value for one in results] == [[200]] * len(KINDS)
            noted = {row.notes["requests"][0]["key"] for row in session.state.facts.effects.rows.values()}
        assert set(service.keys) == noted
        assert len(noted) == len(KINDS)


async def test_an_adapter_survives_pickling() -> None:
    """As sessions of requests do; with its own options."""
    made = pickle.loads(pickle.dumps(Adapter(header="X-Key", unsent_is_not_done=False, pool_maxsize=3)))
    urls: list[str] = []

    @tool(side_effects={"mutate"}, scope="call")
    def act() -> None:
        with requests.Session() as client:
            client.trust_env = False
            client.mount("http://", made)
            client.post(urls[-1])

    with Service() as service, refusing_url() as url:
        urls.append(service.url())
        _, notes = await run(act)
        assert service.keys == [None]
        assert notes["requests"][0]["key"]
        urls.append(url)
        result, _ = await run(act)
        assert result.status == "in_doubt"


def test_a_missing_library_is_named_and_only_when_it_is_needed() -> None:
    """Neither library is installed with holdfast."""
    script = (
        "import sys\n"
        "for name in ('httpx', 'httpx2', 'requests'): sys.modules[name] = None\n"
        "import holdfast\n"
        "holdfast.http.Transport(); holdfast.http.AsyncTransport()\n"
        "try: holdfast.http.Adapter\n"
        "except holdfast.errors.MissingExtra as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "holdfast.http.Adapter needs requests: pip install requests\n"


async def test_a_request_that_belongs_to_no_known_library_is_refused() -> None:
    """Its errors could not be told apart."""
    with pytest.raises(holdfast.errors.BadInput, match="is no request of httpx or httpx2"):
        Transport().handle_request(object())  # type: ignore[arg-type]
    with pytest.raises(holdfast.errors.BadInput, match="is no request of httpx or httpx2"):
        await AsyncTransport().handle_async_request(object())  # type: ignore[arg-type]


async def test_a_tool_can_still_say_by_itself_that_nothing_was_done() -> None:
    """The rule for requests adds to it, and takes nothing away."""
    with Service("drop") as service:

        @tool(side_effects={"mutate"})
        def act() -> None:
            with make_client("requests") as client:
                try:
                    client.post(service.url())
                except requests.exceptions.ConnectionError as error:
                    raise NotDone("the service takes back what it could not answer") from error

        result, _ = await run(act)
        assert result.status == "failed"

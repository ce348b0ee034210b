"""What waits for a person: shown whole, answered with forms, and it is seen who was first."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Registry, Store, tool
from holdfast.core.entries import ApprovalGiven, ApprovalRefused, ToolSettled
from holdfast.formatting import visible
from holdfast.limits import ASKED_SCHEMA_BYTES_MAX, VIEWER_NEEDS
from tests.tools.example_tools import call, hear, reply
from tests.viewer.visitors import (
    Markup,
    Url,
    ask,
    count_reads,
    doubt,
    kill,
    open_session,
    pay,
    text_of,
    visiting,
)

ANN = {"to": "ann", "cents": 500}


async def test_everything_that_waits_is_shown_with_what_a_person_must_know(store_url: Url) -> None:
    """Tool, arguments, key, what the call noted, why it is in doubt, since when; the oldest first."""
    async with holdfast.open_store(store_url) as store:
        first = await doubt(store, "doubtful")
        await kill(store_url, "killed", "Dear Bob")
        await ask(store, "asking", ANN)
        (row,) = (await store.load("doubtful")).in_doubt
        async with visiting(store) as visitor:
            page = await visitor.get("/needs")
            assert re.findall(r'<article class="box need" id="need-(\w+)-\d+">', page) == [
                "doubtful",
                "killed",
                "asking",
            ]
            said = text_of(page)
            for shown in (
                row.key,
                'carrier="snail"',
                "the line went dead",
                "the process that ran it is gone and left no outcome",
                '"text": "Dear Bob"',
                '"cents": 500',
                "pay needs approval",
                "holdfast resolve doubtful call_0 landed --result '…' --store sqlite:agents.db",
                "holdfast refuse asking call_0",
            ):
                assert shown in said
            assert await visitor.get("/needs/list") in page
            one = await visitor.get(f"/needs/call?session=doubtful&entry={first}")
            assert one.count("<article") == 1


async def test_nothing_waits() -> None:
    """An empty store has an empty page."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        assert "Nothing waits for you." in await visitor.get("/needs")
        assert await visitor.get("/needs/count") == ""
        assert "Nothing" not in await visitor.get("/needs/call?session=gone&entry=1", status=404)


async def test_a_call_is_approved_and_the_run_goes_on(store_url: Url) -> None:
    """The record says who, and why."""
    async with holdfast.open_store(store_url) as store, visiting(store, identify=lambda _: "Ann") as visitor:
        entry = await ask(store, "asking", ANN)
        assert "1 waiting" in await visitor.get("/needs/count")
        answer = await visitor.answer("asking", entry, "Approve", note="fine")
        assert "Ann answered first: approved" in text_of(answer.text)
        (given,) = await said(store, "asking", ApprovalGiven)
        assert (given.by, given.note, given.args) == ("Ann", "fine", msgspec.UNSET)
        assert await visitor.get("/needs/count") == ""
        async with store.session("asking") as session:
            (done,) = await Registry([pay]).dispatch_step(session)
        assert done.value == "paid ann 500"


async def said(store: Store, session: str, kind: type[Any]) -> list[Any]:
    """The bodies of a session that are of a kind."""
    return [one.body async for one in store.tail(session, follow=False) if isinstance(one.body, kind)]


async def test_corrected_arguments_are_used(store_url: Url) -> None:
    """Both versions are on record."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        entry = await ask(store, "asking", ANN)
        page = await visitor.get(f"/needs/call?session=asking&entry={entry}")
        assert "cents : integer, needed" in text_of(page)
        await visitor.answer("asking", entry, "Approve", args='{"to": "bob", "cents": 5}')
        (given,) = await said(store, "asking", ApprovalGiven)
        assert given.args == {"to": "bob", "cents": 5}
        async with store.session("asking") as session:
            (done,) = await Registry([pay]).dispatch_step(session)
        assert done.value == "paid bob 5"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ('{"to": "bob", "cents": 5', "not JSON"),
        ("[1]", "must be a JSON object"),
        ('"bob"', "must be a JSON object"),
        ("", "not JSON"),
        ('{"to": "bob"}', "'cents' is a required property"),
        ('{"to": "bob", "cents": "five"}', 'is not of type "integer"'),
        ('{"to": "bob", "cents": 5, "centz": 6}', "centz"),
    ],
)
async def test_wrong_arguments_are_refused_in_words(args: str, why: str) -> None:
    """What was written is still there, and nothing is on record."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        entry = await ask(store, "asking", ANN)
        answer = await visitor.answer("asking", entry, "Approve", args=args, note="my <note>")
        assert answer.status_code == 422
        (wrong,) = re.findall(r'role="alert">(.*?)</p>', answer.text, re.DOTALL)
        assert why in text_of(wrong)
        assert 'value="my &lt;note&gt;"' in answer.text
        assert f">{escape(args)}</textarea>" in answer.text
        assert (await store.head("asking")).waiting == 1
        assert not await said(store, "asking", ApprovalGiven)


async def test_arguments_that_nobody_changed_are_no_correction() -> None:
    """Also where they hold what a page cannot show, and lines that a browser ends in its own way."""
    args = {"to": "an\x00n\u202e\u200b", "cents": 5, "more": {"text": "two\nlines\r\n", "n": 1e300}}
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:

        @tool(name="pay", needs_approval=True, side_effects={"mutate"})
        async def pay_anyhow(to: str, cents: int, more: dict[str, Any]) -> str:
            """Pay."""
            return "paid"

        async with store.session("asking") as session:
            await reply(session, call("pay", args))
            await Registry([pay_anyhow]).dispatch_step(session)
            (entry,) = session.state.facts.effects.questions
        page = await visitor.get(f"/needs/call?session=asking&entry={entry}")
        (shown,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
        assert msgspec.json.decode(unescape(shown)) == args
        await visitor.answer("asking", entry, "Approve", args=unescape(shown).replace("\n", "\r\n"))
        (given,) = await said(store, "asking", ApprovalGiven)
        assert given.args is msgspec.UNSET


async def test_a_call_is_refused_with_a_reason(store_url: Url) -> None:
    """The model is told, and a half-written correction is not used."""
    async with holdfast.open_store(store_url) as store, visiting(store, identify=lambda _: "Ann") as visitor:
        entry = await ask(store, "asking", ANN)
        answer = await visitor.answer("asking", entry, "Refuse", reason="too much")
        assert "Ann answered first: refused" in text_of(answer.text)
        (refused,) = await said(store, "asking", ApprovalRefused)
        assert refused.by == "Ann"
        state = await store.load("asking")
        assert "too much" in str(state.transcript[-1])


@pytest.mark.parametrize(
    ("verdict", "result", "expected"),
    [
        ("landed", '{"receipt": 7}', {"receipt": 7}),
        ("landed", "receipt 7", "receipt 7"),
        ("not_landed", "", None),
        ("gave_up", "", None),
    ],
)
async def test_a_call_in_doubt_is_resolved(
    store_url: Url, verdict: str, result: str, expected: object
) -> None:
    """Whether its process was killed or its answer was lost."""
    async with holdfast.open_store(store_url) as store, visiting(store, identify=lambda _: "Ann") as visitor:
        entry = await kill(store_url, "killed")
        answer = await visitor.answer(
            "killed", entry, "Record", answer=verdict, result=result, note="I asked the post"
        )
        assert "Ann answered first" in text_of(answer.text)
        (settled,) = await said(store, "killed", ToolSettled)
        assert (settled.verdict, settled.by, settled.note) == (verdict, "Ann", "I asked the post")
        if expected is not None:
            assert str(msgspec.json.encode(expected), "utf-8").strip('"') in str(
                (await store.load("killed")).transcript[-1]
            ).replace("'", '"')


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"answer": "not_landed", "result": "receipt"}, "only a call that landed has a result"),
        ({"answer": ""}, "choose one of the answers"),
        ({"answer": "approve"}, "choose one of the answers"),
        ({}, "choose one of the answers"),
    ],
)
async def test_a_wrong_verdict_is_refused_in_words(fields: dict[str, str], why: str) -> None:
    """What was chosen and written is still there."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        entry = await doubt(store, "doubtful")
        answer = await visitor.answer("doubtful", entry, "Record", note="hm", **fields)
        assert answer.status_code == 422
        assert why in text_of(answer.text)
        assert 'value="hm"' in answer.text
        assert (await store.head("doubtful")).in_doubt == 1


async def test_two_people_see_who_was_first(store_url: Url) -> None:
    """The second is told, whatever the answer was; only the first counts."""
    async with holdfast.open_store(store_url) as store:
        entry = await ask(store, "asking", ANN)
        async with (
            visiting(store, identify=lambda _: "Ann") as ann,
            visiting(store, identify=lambda _: "Bob") as bob,
        ):
            form = await bob.fields(f"/needs/call?session=asking&entry={entry}", "Refuse")
            await ann.answer("asking", entry, "Approve")
            answer = await bob.post("/needs/answer", {**form, "reason": "no"})
            seen = text_of(await bob.get(answer.headers["location"]))
            assert "Ann answered first: approved" in seen
            assert not await said(store, "asking", ApprovalRefused)


async def test_an_answer_that_is_on_its_way_is_shown_and_the_first_one_counts(store_url: Url) -> None:
    """The session is held elsewhere: its holder takes the answers in, in their order."""
    async with holdfast.open_store(store_url) as holder:
        session = await open_session(holder, "asking")
        await reply(session, call("pay", ANN))
        await Registry([pay]).dispatch_step(session)
        await session.flush()
        (entry,) = session.state.facts.effects.questions
        async with (
            holdfast.open_store(store_url) as store,
            visiting(store, identify=lambda _: "Ann") as ann,
            visiting(store, identify=lambda _: "Bob") as bob,
        ):
            answer = await ann.answer("asking", entry, "Approve")
            assert "Ann answered: approved; on its way" in text_of(answer.text)
            assert "Ann answered: approved; on its way" in text_of(await bob.get("/needs"))
            await bob.answer("asking", entry, "Refuse", reason="no")
            await session.flush()
            await hear(session)
            seen = text_of(await bob.get(f"/needs/call?session=asking&entry={entry}"))
            assert "Ann answered first: approved" in seen
            assert re.search(r"Bob refused .* late: it changed nothing", seen)


async def test_who_is_unknown_answers_nothing() -> None:
    """`identify` may be a coroutine, and decides."""

    async def identify(request: Any) -> str | None:
        name = request.headers.get("x-user")
        return None if name is None else str(name)

    async with holdfast.open_store("memory:") as store, visiting(store, identify=identify) as visitor:
        entry = await ask(store, "asking", ANN)
        answer = await visitor.answer("asking", entry, "Approve")
        assert answer.status_code == 403
        assert (await store.head("asking")).waiting == 1
        fields = await visitor.fields(f"/needs/call?session=asking&entry={entry}", "Approve")
        assert (await visitor.post("/needs/answer", fields, **{"x-user": "Zoe"})).status_code == 303
        (given,) = await said(store, "asking", ApprovalGiven)
        assert given.by == "Zoe"


async def test_a_user_without_a_name_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: the page says so, and `identify` may name somebody."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 987_654_321)
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        entry = await ask(store, "asking", ANN)
        assert "You are not known here" in await visitor.get("/needs")
        assert (await visitor.answer("asking", entry, "Approve")).status_code == 403


async def test_what_a_deleted_session_left_in_doubt_is_answered(store_url: Url) -> None:
    """Another session may still do the same: so the answer goes to the operation."""

    @tool(side_effects={"mutate"}, scope="global")
    async def announce(what: str) -> str:
        """Tell everybody."""
        raise ConnectionError("the line went dead")

    async with holdfast.open_store(store_url) as store, visiting(store, identify=lambda _: "Ann") as visitor:
        async with store.session("gone") as session:
            await reply(session, call("announce", {"what": "a party"}))
            await Registry([announce]).dispatch_step(session)
        await store.delete("gone")
        page = await visitor.get("/needs")
        assert "announce" in text_of(page)
        assert "1 waiting" in await visitor.get("/needs/count")
        fields = await visitor.fields("/needs", "Record")
        answer = await visitor.post("/needs/answer", {**fields, "answer": "landed", "result": "told"})
        assert "is recorded" in text_of(answer.text)
        again = await visitor.post("/needs/answer", {**fields, "answer": "not_landed"})
        assert "answered first" in text_of(again.text)
        assert "Nothing waits" in await visitor.get("/needs")


async def test_many_that_wait_are_paged() -> None:
    """Only as many sessions are read as are shown."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        for number in range(VIEWER_NEEDS + 2):
            await doubt(store, f"d-{number:02}")
        first, second = await visitor.get("/needs"), await visitor.get("/needs?page=1")
        assert first.count("<article") == VIEWER_NEEDS
        assert second.count("<article") == 2
        assert 'href="/needs?page=1" rel="next"' in first


async def test_a_journal_that_did_not_change_is_not_read_again() -> None:
    """A page that is open all day costs a listing now and then."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        await ask(store, "asking", ANN)
        await visitor.get("/needs")
        read = count_reads(store)
        page = await visitor.get("/needs/list")
        assert "asking" in page
        assert read == []
        await doubt(store, "doubtful")
        await visitor.answer("asking", await entry_of(store), "Approve")
        read.clear()
        page = await visitor.get("/needs")
        assert "doubtful" in page
        assert "need-asking" not in page
        assert set(read) == {"doubtful"}


async def entry_of(store: Store) -> int:
    """The entry that asked for approval."""
    (entry,) = (await store.load("asking")).facts.effects.questions
    return entry


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "</textarea></pre><script>alert(1)</script>",
    "\x1b]0;x\x07\x00\u202etxt\u200b",
)


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_what_was_said_is_text(hostile: str) -> None:
    """Titles, arguments, notes, errors, reasons, names of people and labels: never markup, nothing hidden."""

    @tool(name="send", side_effects={"mutate"})
    async def send_and_say(ctx: holdfast.ToolContext[Any], text: str) -> str:
        """Send."""
        await ctx.annotate(note=hostile, requests=[hostile])
        raise ConnectionError(hostile)

    async with (
        holdfast.open_store("memory:") as store,
        visiting(store, identify=lambda _: hostile.replace("\x00", "0")) as visitor,
    ):
        entry = await ask(store, "asking", {"to": hostile, "cents": 5}, title=hostile)
        async with store.session("doubtful", labels={"tenant": visible(hostile)}) as session:
            await session.add(hostile)
            await reply(session, call("send", {"text": hostile}, id=hostile))
            await Registry([send_and_say]).dispatch_step(session)
        call_page = f"/needs/call?session=asking&entry={entry}"
        pages = [await visitor.get(path) for path in ("/", "/needs", call_page)]
        wrong = await visitor.answer("asking", entry, "Approve", args=hostile, note=hostile)
        done = await visitor.answer("asking", entry, "Refuse", reason=hostile)
        for page in (*pages, wrong.text, done.text):
            markup = Markup(page)
            assert markup.tags.count("script") == 1
            assert not {"img", "iframe", "object", "embed", "svg"} & set(markup.tags)
            assert not [name for name in markup.attributes if name.startswith("on")]
            assert not re.search("[\x00\x1b\u202e\u200b]", page)


async def test_the_schema_is_recorded_with_the_question_unless_it_is_large() -> None:
    """Those who correct arguments elsewhere have it; after the answer it is not kept in the state."""
    names = ", ".join(f"a_{number}" for number in range(3))

    async def ask_with(store: Store, schema: dict[str, Any]) -> Any:
        @tool(schema=schema, needs_approval=True, side_effects={"mutate"})
        async def wide(**given: Any) -> str:
            """Take much."""
            return "done"

        async with store.session(f"s-{len(str(schema))}") as session:
            await reply(session, call("wide", {}))
            await Registry([wide]).dispatch_step(session)
            (question,) = session.state.facts.effects.questions.values()
            return question.schema

    async with holdfast.open_store("memory:") as store:
        small = {"type": "object", "properties": {"a": {"type": "string", "description": names}}}
        recorded = await ask_with(store, small)
        assert recorded["properties"] == small["properties"]
        large = {"type": "object", "properties": {"a": {"description": "x" * ASKED_SCHEMA_BYTES_MAX}}}
        assert await ask_with(store, large) is None
        await ask(store, "asking", ANN)
        await store.approve("asking", "call_0", by="ann")
        (answer,) = (await store.load("asking")).facts.effects.answers.values()
        assert answer.schema is None

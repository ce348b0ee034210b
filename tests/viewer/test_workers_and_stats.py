"""The workers of a store, what is due, and what its sessions add up to."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

import holdfast
from holdfast.core import entries as kinds
from holdfast.core.budget import Usage
from holdfast.core.entries import CallRef
from holdfast.engine.heartbeat import Duty
from holdfast.limits import VIEWER_COUNTED_SESSIONS
from tests.drawing.example_journals import Author, store_journal, write_eventful
from tests.internals import engine_of
from tests.tools.example_tools import die
from tests.viewer.visitors import Url, text_of, visiting


async def test_workers_are_shown_with_their_load_and_what_is_due(store_url: Url) -> None:
    """One that was killed, too, and the sessions that wait for a worker."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        page = text_of(await visitor.get("/workers"))
        assert "No worker runs" in page
        assert "No session waits for a worker." in page
        await store.submit("asked", "Please", agent="clerk")
        heartbeat = engine_of(store).heartbeat
        duty = Duty(agents=("clerk", "<b>"), concurrency=4, since=datetime.now(UTC), labels={"team": "blue"})
        await engine_of(store).call(heartbeat.announce, duty)
        async with store.session("driven") as session:
            await session.add("Go on")
            await session.flush()
            page = await visitor.get("/workers")
            said = text_of(page)
            for shown in ("working", "clerk, <b>", "team=blue", "asked", "holdfast workers --store"):
                assert shown in said, shown
            assert re.search(r"\d of 4", said)
            assert "<b>" not in page
            assert await visitor.get("/workers?live=body") in page


async def test_a_session_of_a_dead_worker_is_due(store_url: Url) -> None:
    """Its holder was killed in a run."""
    dead = holdfast.open_store(store_url)
    await dead.__aenter__()
    session = dead.session("left")
    await session.__aenter__()
    async with session.run(agent="clerk", model="m"):
        await session.add("Begin")
        await session.flush()
        die(dead)
        async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
            said = text_of(await visitor.get("/workers"))
            assert "left clerk due since" in said


async def test_what_sessions_spent_and_how_long_models_and_tools_took(store_url: Url) -> None:
    """Percentiles by model and tool, refusals by gate, and the same numbers as `holdfast stats`."""
    author = Author("s")
    author.take("agent@web")
    author.say("Go")
    for number in range(1, 21):
        asked = author.request()
        author.wait(number)
        usage = Usage(input_tokens=100, output_tokens=10)
        replied = kinds.ModelReplied(request=asked, usage=usage, cost_usd=0.5, latency_ms=1000.0 * number)
        seq = author.add(replied, b'{"role":"assistant","blocks":[]}')
        author.ran(seq, 0, "<look>", {}, "ok", took_s=number / 10)
        refused = kinds.ToolRefused(call=CallRef(id="c", reply=seq, index=1), tool="pay", gate="policy")
        author.add(refused, msgspec.json.encode({"text": "no"}))
        author.checkpoint()
    author.release()
    eventful, _ = write_eventful()
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        store_journal(store, author)
        store_journal(store, eventful)
        page = await visitor.get("/stats?session=s")
        said = text_of(page)
        for shown in (
            "2,000 in, 200 out",
            "$10.00",
            "sonnet-9 20 2,000 / 200 $10.00 10.5 s 19.1 s 20.0 s median 10.5 s, p95 19.1 s",
            "<look> 20 20 completed 1.1 s 1.9 s 2.0 s",
            "policy pay 20 20",
            "holdfast stats s --store sqlite:agents.db",
        ):
            assert shown in said, shown
        assert "<look>" not in page
        assert "order-42" not in said
        everything = text_of(await visitor.get("/stats"))
        assert "In detail 2 sessions" in everything
        assert "interrupted 1" in everything
        assert "money clerk $10.03" in everything
        await visitor.get("/stats?session=none", status=404)
        await visitor.get("/stats?sessions=-1", status=400)


async def test_of_many_sessions_the_latest_are_counted_in_detail() -> None:
    """And the page says so; more of them are counted when they are asked for."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        for number in range(VIEWER_COUNTED_SESSIONS + 3):
            author = Author(f"s{number}")
            author.take("agent@web")
            author.release()
            store_journal(store, author)
        page = await visitor.get("/stats")
        assert f"In detail {VIEWER_COUNTED_SESSIONS} sessions" in text_of(page)
        assert f"Of the {VIEWER_COUNTED_SESSIONS} sessions that changed last" in text_of(page)
        (more,) = re.findall(r'href="(/stats\?sessions=\d+)"', page)
        page = await visitor.get(more)
        assert f"In detail {VIEWER_COUNTED_SESSIONS + 3} sessions" in text_of(page)
        assert "that changed last" not in text_of(page)

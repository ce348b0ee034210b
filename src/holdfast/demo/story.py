"""The process that is killed: a hand-written loop that does a little research, on a session.

Its model is a script and its library three shelves, so it needs no key and no network. What it does is told
to the stage as lines of JSON.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
import msgspec

from .. import (
    Budget,
    Message,
    Plan,
    PlanStep,
    Run,
    Session,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    open_store,
)

SESSION = "kelp"
MODEL = "pretend-1"
QUESTION = "What keeps a giant kelp in its place when a storm comes?"
REPLY_USD = (0.011, 0.014, 0.019)
RESERVED_USD = 0.05

_REPLIES = (
    Message(
        role="assistant",
        blocks=(
            Text("Kelp has no roots. I will see what the library says about its anchor."),
            ToolCall(id="call_0", name="search_library", args={"query": "kelp anchor"}),
        ),
    ),
    Message(
        role="assistant",
        blocks=(
            Text("It is called a holdfast. I will read that page."),
            ToolCall(id="call_0", name="read_page", args={"title": "Holdfast"}),
        ),
    ),
    Message(
        role="assistant",
        blocks=(
            Text(
                "A holdfast: a tangle of finger-like haptera that grip the rock. It takes up no water and no "
                "food. All it does is hold on, so that everything else can be torn at and grow again."
            ),
        ),
    ),
)
_LIBRARY = {
    "search_library": "1 hit: 'Holdfast' (marine botany, 2 pages)",
    "read_page": "The holdfast anchors the alga to rock by branching haptera; it does not absorb nutrients.",
}
_PLAN = Plan(
    goal="Answer the question, with a source",
    steps=(
        PlanStep(id="search", what="find a source", postcondition="a page is named"),
        PlanStep(id="read", what="read it", postcondition="its words are quoted"),
        PlanStep(id="answer", what="answer", postcondition="an answer is given"),
    ),
)


class Event(msgspec.Struct, omit_defaults=True):
    """What the stage is told. `kind` is `opened`, `asked`, `replied`, `tool`, `result`, `kept` or `done`."""

    kind: str
    text: str = ""
    version: int = 0
    usd: float = 0.0
    took_ms: float = 0.0
    messages: int = 0


def tell(event: Event) -> None:
    """Tell the stage."""
    sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
    sys.stdout.buffer.flush()


class Provider:
    """The model's side: it answers from its script, and writes every request on a bill of its own."""

    def __init__(self, bill: Path) -> None:
        self._bill = bill

    async def ask(self, session: Session) -> tuple[Message, float]:
        """The next reply, and what it costs."""
        said = sum(1 for message in session.transcript if message.role == "assistant")
        with self._bill.open("a") as bill:
            bill.write(f"request for reply {said + 1}: ${REPLY_USD[said]:.3f}\n")
        return _REPLIES[said], REPLY_USD[said]


def find_open_calls(session: Session) -> list[ToolCall]:
    """The calls of the last reply that nobody has answered: the place where a killed process stopped."""
    missing = {problem.call_id for problem in session.problems if problem.kind == "missing"}
    last = session.transcript[-1]
    return [call for call in last.tool_calls if call.id in missing] if isinstance(last, Message) else []


class Researcher:
    """The loop. It looks at the session to know what to do next, and at nothing else."""

    def __init__(self, session: Session, provider: Provider, *, pace_s: float, stuck_in: str | None) -> None:
        self._session, self._provider = session, provider
        self._pace_s, self._stuck_in = pace_s, stuck_in

    async def drive(self, run: Run) -> None:
        """Until the model has answered."""
        session = self._session
        while not (session.continuable and session.transcript[-1].role == "assistant"):
            if calls := find_open_calls(session):
                for call in calls:
                    await self._use_tool(call)
            else:
                await self._ask(run)
            if session.continuable:
                await self._keep()

    async def _ask(self, run: Run) -> None:
        tell(Event("asked", MODEL))
        async with run.request(model=MODEL, reserve_usd=RESERVED_USD) as request:
            reply, cost_usd = await self._provider.ask(self._session)
            await anyio.sleep(self._pace_s)
            usage = Usage(
                input_tokens=400 * len(self._session.transcript), output_tokens=len(reply.text) // 4
            )
            await request.reply(reply, usage=usage, cost_usd=cost_usd)
        tell(Event("replied", reply.text, usd=cost_usd))

    async def _use_tool(self, call: ToolCall) -> None:
        """Looking something up changes nothing, so doing it again after a crash is harmless."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.args.items())
        tell(Event("tool", f"{call.name}({arguments})"))
        await anyio.sleep(60 if call.name == self._stuck_in else self._pace_s)
        found = _LIBRARY[call.name]
        result = ToolResult(call_id=call.id, content=found)
        await self._session.add(Message(role="tool", blocks=(result,)))
        tell(Event("result", found))
        await self._session.set(f"notes/{call.name}", found)
        await self._tick({"search_library": "search", "read_page": "read"}[call.name], found)

    async def _keep(self) -> None:
        last = self._session.transcript[-1]
        if last.role == "assistant":
            await self._tick("answer", last.text)
        version = await self._session.checkpoint()
        tell(Event("kept", version=version, usd=self._session.budget.usd))

    async def _tick(self, step: str, evidence: str) -> None:
        plan = self._session.plan
        assert plan is not None
        await self._session.set_plan(plan.update(step, status="done", evidence=evidence[:60]))


async def perform(database: Path, *, pace_s: float, stuck_in: str | None) -> None:
    """Open the session, go on from wherever it stands, and finish."""
    began = time.perf_counter()
    async with open_store(database) as store, store.session(SESSION, wait_s=60) as session:
        took_ms = 1000 * (time.perf_counter() - began)
        tell(Event("opened", took_ms=took_ms, messages=len(session.transcript)))
        provider = Provider(database.with_suffix(".bill"))
        researcher = Researcher(session, provider, pace_s=pace_s, stuck_in=stuck_in)
        async with session.run(agent="researcher", model=MODEL) as run:
            if not session.transcript:
                await session.set_budget(Budget(usd=0.25))
                await session.set_plan(_PLAN)
                await session.add(QUESTION)
            await researcher.drive(run)
            run.complete(session.transcript[-1].text)
        tell(Event("done", session.transcript[-1].text, usd=session.budget.usd))


def main() -> None:
    """`python -m holdfast.demo.story DATABASE PACE [TOOL]`: gets stuck in the tool that is named."""
    database, pace_s, *stuck_in = sys.argv[1:]
    work = perform(Path(database), pace_s=float(pace_s), stuck_in=stuck_in[0] if stuck_in else None)

    async def run() -> None:
        await work

    anyio.run(run)


if __name__ == "__main__":
    main()

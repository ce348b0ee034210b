"""A loop of your own on a session: kill it wherever you like, run it again, and it carries on.

    python examples/plain_loop.py [STORE]

Press Ctrl-C, pull the plug, or send SIGKILL while it works; then start it again with the same store. What the
model has said is never asked for twice, because `reply` returns only once it is durable. The "model" and its
tool are a few lines below, so this needs no key and no network.
"""

from __future__ import annotations

import sys

import anyio

import holdfast
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.records import Usage

QUESTIONS = ("Which city has the oldest zoo?", "Which city has the largest library?", "Thank you. Sum it up.")
FACTS = {"oldest zoo": "Vienna, opened in 1752", "largest library": "Washington, with 170 million items"}


async def ask_model(session: holdfast.Session) -> Message:
    """Stands in for a provider: it calls the tool for a question, and answers once there is a result."""
    await anyio.sleep(0.05)
    last = session.transcript[-1]
    assert isinstance(last, Message)
    if last.role == "tool":
        return Message(role="assistant", blocks=(Text(f"I found: {_result_text(last)}."),))
    topic = next((topic for topic in FACTS if topic in last.text), None)
    if topic is None:
        messages = [one for one in session.transcript if isinstance(one, Message) and one.role == "tool"]
        summary = "; ".join(_result_text(message) for message in messages)
        return Message(role="assistant", blocks=(Text(f"All in all: {summary}."),))
    call = ToolCall(id="call_0", name="look_up", args={"topic": topic})
    return Message(role="assistant", blocks=(Text("Let me look that up."), call))


def _result_text(message: Message) -> str:
    return " ".join(str(block.content) for block in message.blocks if isinstance(block, ToolResult))


def look_up(topic: str) -> str:
    """The tool. It only reads, so that running it again after a crash does no harm."""
    return FACTS[topic]


def open_calls(session: holdfast.Session) -> list[ToolCall]:
    """The calls of the last reply that have no result yet: where a killed process may have stopped."""
    missing = {problem.call_id for problem in session.problems if problem.kind == "missing"}
    last = session.transcript[-1] if session.transcript else None
    return [call for call in last.tool_calls if call.id in missing] if isinstance(last, Message) else []


async def answer(session: holdfast.Session, run: holdfast.records.Run) -> None:
    """Drive the session until the model has nothing more to do; from wherever it stands."""
    while not (session.continuable and session.transcript[-1].role == "assistant"):
        if calls := open_calls(session):
            results = tuple(ToolResult(call_id=call.id, content=look_up(**call.args)) for call in calls)
            await session.add(Message(role="tool", blocks=results))
        else:
            async with run.request(model="pretend-1", reserve_usd=0.01) as request:
                reply = await ask_model(session)
                await request.reply(reply, usage=Usage(input_tokens=120, output_tokens=20), cost_usd=0.002)
            print(f"  model: {reply.text}")
        if session.continuable:
            await session.checkpoint()


async def main(url: str) -> None:
    """Ask what was not asked yet, and finish what was not finished."""
    async with holdfast.open_store(url) as store, store.session("zoo") as session:
        print(f"session {session.id}: {len(session.transcript)} messages are there, status {session.status}")
        if session.budget.caps.usd is None:
            await session.set_budget(holdfast.Budget(usd=0.50))
        async with session.run(agent="librarian") as run:
            if session.transcript:
                await answer(session, run)
            asked = {message.text for message in session.transcript if message.role == "user"}
            for question in QUESTIONS:
                if question in asked:
                    continue
                print(f"you: {question}")
                await session.add(question)
                await answer(session, run)
        spent = session.budget
        print(f"done after {spent.steps} steps; {spent.tokens} tokens, ${spent.usd:.3f}")


if __name__ == "__main__":
    try:
        anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "sqlite:zoo.db")
    except KeyboardInterrupt:
        print("stopped; run it again to go on")

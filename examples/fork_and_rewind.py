"""Going back, and going on twice: rewind, fork and diff.

python examples/fork_and_rewind.py [STORE]
"""

from __future__ import annotations

import sys

import anyio

import holdfast
from holdfast.messages import Message, Text
from holdfast.records import Plan, PlanStep


async def say(session: holdfast.Session, question: str, reply: str) -> int:
    """One step: a question, an answer, a checkpoint; its version."""
    await session.add(question)
    await session.add(Message(role="assistant", blocks=(Text(reply),)))
    return await session.checkpoint()


def show(title: str, session: holdfast.Session) -> None:
    """What the session looks like now."""
    print(f"{title} (version {session.version})")
    for message in session.transcript:
        print(f"  {message.role:>9}: {message.text}")


async def main(url: str) -> None:
    """Three steps, a rewind, and a fork from the middle."""
    async with holdfast.open_store(url) as store:
        async with store.session("trip") as session:
            plan = Plan(goal="A weekend away", steps=(PlanStep(id="where", what="choose a city"),))
            await session.set_plan(plan)
            await say(session, "Where shall we go?", "Lisbon is lovely in spring.")
            await session.set("city", "Lisbon")
            await session.set_plan(plan.update("where", status="done", evidence="Lisbon was chosen"))
            chosen = await say(session, "Lisbon it is.", "I will look for trains.")
            await say(session, "Trains? From Oslo?", "You are right: there are none.")
            show("after three steps", session)

            await session.rewind(version=chosen)
            show("\nafter going back", session)
            await say(session, "By plane, please.", "There is a flight on Friday at nine.")
            show("\nand going on from there", session)

        fork = await store.fork("trip", version=1, into="trip-to-porto", labels={"kind": "what-if"})
        async with store.session(fork) as session:
            await session.set("city", "Porto")
            await say(session, "What about Porto?", "Even better.")
            show("\na fork from version 1", session)

        changes = await store.diff("trip", 1, 4)
        print("\nfrom version 1 to version 4 of the trip:")
        for message in changes.messages_added:
            print(f"  + {message.role}: {message.text}")
        for key, change in changes.state.items():
            print(f"  {key}: {change.before} -> {change.after}")
        for id, (before, after) in changes.plan.items():
            print(f"  plan step {id}: {before and before.status} -> {after and after.status}")

        print("\nall versions of the trip:")
        async for one in store.checkpoints("trip"):
            print(f"  {one.version}: built on {one.base}, entry {one.seq}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "memory:")

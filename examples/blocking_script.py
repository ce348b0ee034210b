"""No event loop: a plain script that files a few tickets, answers one of them, and lists what waits.

    python examples/blocking_script.py [STORE]

Run it twice: the second time, the tickets are there already, and only the list is printed.
"""

from __future__ import annotations

import sys

from holdfast import blocking
from holdfast.records import Usage

TICKETS = {
    "ticket-1": "My parcel has not arrived.",
    "ticket-2": "The kettle leaks.",
    "ticket-3": "Can I pay by invoice?",
}


def answer(question: str) -> str:
    """Stands in for a model."""
    return "Yes, from the second order on." if "invoice" in question else "Let me find a colleague."


def handle(store: blocking.Store, ticket: str, question: str) -> None:
    """One ticket, one session."""
    with store.session(ticket, labels={"desk": "support"}) as session:
        if session.transcript:
            return
        with session.run(agent="desk") as run:
            session.add(question)
            with run.request(model="pretend-1") as request:
                reply = answer(question)
                request.reply(reply, usage=Usage(input_tokens=20, output_tokens=8), cost_usd=0.0004)
            session.checkpoint()
            if "colleague" in reply:
                run.pause("needs a person")


def main(url: str) -> None:
    """File, answer, list."""
    with blocking.open_store(url) as store:
        for ticket, question in TICKETS.items():
            handle(store, ticket, question)
        print("waiting for a person:")
        for head in store.sessions(status="waiting", label={"desk": "support"}):
            print(f"  {head.session}: {head.title} (${head.usd:.4f})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:tickets.db")

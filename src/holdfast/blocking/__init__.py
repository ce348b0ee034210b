"""The same store, sessions and agents, for code without an event loop.

    with blocking.open_store("sqlite:agents.db") as store, store.session("order-42") as session:
        with session.run(agent="planner") as run:
            session.add("Refund order 42")
            with run.request(model="…", reserve_usd=0.05) as request:
                request.reply(ask(session.transcript))
            session.checkpoint()

An event loop in a thread of its own does the work. Every method here hands over to it and waits; what each
one does is said where the async one is.
"""

from .proxy import Agent, Hold, OpenBlob, Registry, Request, Run, Session, Store, open_store

__all__ = ["Agent", "Hold", "OpenBlob", "Registry", "Request", "Run", "Session", "Store", "open_store"]

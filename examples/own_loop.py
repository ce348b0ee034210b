"""A loop of your own: a provider's client over HTTP, tools in a registry, and a call that waits for a person.

    pip install openai
    python examples/own_loop.py [STORE]                 the agent asks, Ann agrees, the agent goes on
    python examples/own_loop.py --as agent STORE        the agent alone; kill it wherever you like

`OPENAI_BASE_URL` and `OPENAI_MODEL` say which OpenAI-compatible server is asked. Without them, a pretend one
of a few lines is started, so this needs no key and no network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import openai

import holdfast
from holdfast.records import Run

MODEL = os.environ.get("OPENAI_MODEL", "pretend")
BOOK = Path("refunds.txt")
"""Stands in for the bank: a line for each payment."""


# -- the tools -------------------------------------------------------------------------------------------


def was_refunded(
    ctx: holdfast.ToolContext[None], order: str, cents: int
) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the bank by the key of the effect: the same before and after a crash."""
    done = BOOK.exists() and ctx.key in BOOK.read_text()
    return holdfast.Landed(f"refunded {cents} cents") if done else holdfast.NotLanded()


@holdfast.tool(side_effects={"mutate"}, verify=was_refunded, needs_approval=lambda order, cents: cents > 1000)
def refund(ctx: holdfast.ToolContext[None], order: str, cents: int) -> str:
    """Give the money for an order back."""
    if cents <= 0:
        raise holdfast.NotDone("there is nothing to pay back")
    with BOOK.open("a") as book:
        book.write(f"{ctx.key} {order} {cents}\n")
    return f"refunded {cents} cents"


@holdfast.tool(side_effects={"read"})
def find_order(order: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order": order, "item": "kettle", "cents": 9900}


registry = holdfast.Registry([find_order, refund])


# -- the loop --------------------------------------------------------------------------------------------


async def drive(session: holdfast.Session, run: Run, client: openai.AsyncOpenAI) -> None:
    """Go on from wherever the session stands, until the model has answered or a call waits."""
    tools: Any = registry.schemas("openai")
    while True:
        step = await registry.dispatch_step(session)
        if step.waiting:
            for one in step.waiting:
                print(f"waits: {one.tool} {one.args} ({one.kind})", flush=True)
            run.pause(step.waiting[0].kind)
            return
        await session.checkpoint()
        if session.transcript[-1].role == "assistant":
            print(f"answer: {session.transcript[-1].text}", flush=True)
            return
        async with run.request(model=MODEL, reserve_tokens=4_000) as request:
            messages = await session.messages("openai")
            reply = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            await request.reply(reply)  # With its usage. Durable on return.
        print("model: replied", flush=True)


async def agent(url: str) -> None:
    """One process of the agent: the first, or one after a kill or an answer."""
    client = openai.AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"))
    async with client, holdfast.open_store(url) as store, store.session("order-42", wait_s=60) as session:
        if session.budget.caps.tokens is None:
            await session.set_budget(holdfast.Budget(tokens=50_000))
        async with session.run(agent="clerk", model=MODEL) as run:
            await session.settle(registry)
            if not session.transcript:
                await session.add("The kettle of order 42 leaks. Please refund it.")
            await drive(session, run, client)


async def person(url: str) -> None:
    """Ann agrees to what waits; usually from another process or machine."""
    async with holdfast.open_store(url) as store:
        state = await store.load("order-42")
        for question in state.facts.effects.questions.values():
            print(f"ann: {question.tool} {question.args}? Yes.", flush=True)
            await store.approve("order-42", question.call.id, by="ann")


# -- a pretend provider, and the story -------------------------------------------------------------------


def complete(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The reply to a conversation: it looks the order up, refunds it, and says so."""
    results = [message for message in messages if message["role"] == "tool"]
    calls = (("find_order", {"order": "42"}), ("refund", {"order": "42", "cents": 9900}))
    if len(results) == len(calls):
        return {"role": "assistant", "content": f"Done: {results[-1]['content']}."}
    name, args = calls[len(results)]
    call = {
        "id": f"call_{len(results)}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(args)},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Provider(BaseHTTPRequestHandler):
    """`POST /v1/chat/completions`, as OpenAI-compatible servers have it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Reply, with the usage."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = complete(asked["messages"])
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140},
        }
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def provider() -> Iterator[str]:
    """The address of the server to ask."""
    if "OPENAI_BASE_URL" in os.environ:
        yield os.environ["OPENAI_BASE_URL"]
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def main(url: str | None) -> None:
    """Three processes, one after another."""
    with tempfile.TemporaryDirectory() as folder, provider() as address:
        if url in (None, "memory:"):  # A store in memory would die with the first process.
            url = f"sqlite:{folder}/agents.db"
        for role in ("agent", "person", "agent"):
            command = [sys.executable, __file__, "--as", role, str(url)]
            subprocess.run(command, check=True, env={**os.environ, "OPENAI_BASE_URL": address})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        anyio.run({"agent": agent, "person": person}[sys.argv[2]], sys.argv[3])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)

"""A chat behind a small web service. The server is killed in the middle of a reply, and the chat goes on.

    pip install starlette uvicorn
    python examples/chat_service.py [STORE]                 a server, a guest, a kill
    python examples/chat_service.py --serve 8000 [STORE]    the server alone

    POST /chats/{chat}   what the guest says; the reply streams back as text
    GET  /chats/{chat}   all that was said, as JSON

A message has the key that the guest chose. So a guest whose connection broke simply sends it again: it is one
message, and a reply that is there already is given again. `wait_s` waits for a reply that is under way.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import holdfast
from holdfast.agents import Outcome, Prompt, Reply, TextDelta
from holdfast.messages import Message, Text
from holdfast.records import Usage


class SlowModel:
    """Stands in for a hosted one: a word every 30 ms."""

    name = "pretend"

    async def ask(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Reply, None]:
        """What it says, word by word, and then as a whole."""
        said = [message.text for message in prompt.messages if message.role == "user"]
        text = f"This is number {len(said)} of what you told me, and I will gladly look into it: {said[-1]}"
        for word in text.split():
            await anyio.sleep(0.03)
            yield TextDelta(f"{word} ")
        usage = Usage(input_tokens=len(str(prompt)) // 4, output_tokens=len(text) // 4)
        yield Reply(message=Message(role="assistant", blocks=(Text(text),)), usage=usage)


agent = holdfast.Agent(SlowModel(), name="host", budget=holdfast.Budget(tokens=1_000_000))


async def say(request: Request) -> Response:
    """Take the message, and stream the reply."""
    store: holdfast.Store = request.app.state.store
    said, key = (await request.body()).decode(), request.headers["Idempotency-Key"]
    return StreamingResponse(reply(store, request.path_params["chat"], said, key), media_type="text/plain")


async def reply(store: holdfast.Store, chat: str, said: str, key: str) -> AsyncIterator[str]:
    """Word by word; one that was given before, at once."""
    streamed = False
    async for event in agent.stream(said, session=chat, store=store, key=key, wait_s=30):
        if isinstance(event, TextDelta):
            streamed = True
            yield event.text
        elif isinstance(event, Outcome) and not streamed:
            yield event.output or f"[{event.reason}]"


async def show(request: Request) -> Response:
    """All that was said."""
    store: holdfast.Store = request.app.state.store
    chat: str = request.path_params["chat"]
    said = [f"{message.role}: {message.text}" for message in (await store.load(chat)).transcript]
    return JSONResponse({"said": said, "runs": [run.status async for run in store.runs(session=chat)]})


def make_app(url: str) -> Starlette:
    """The service on a store. What the last server left unfinished, this one finishes."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with holdfast.open_store(url) as store, anyio.create_task_group() as tasks:
            app.state.store = store
            tasks.start_soon(agent.resume_all, store)
            yield
            tasks.cancel_scope.cancel()

    routes = [Route("/chats/{chat}", say, methods=["POST"]), Route("/chats/{chat}", show)]
    return Starlette(routes=routes, lifespan=lifespan)


# -- the story -------------------------------------------------------------------------------------------


class Guest:
    """A user with a browser."""

    def __init__(self, port: int) -> None:
        self._port = port

    def say(self, text: str, *, key: str) -> Iterator[str]:
        """Say something; the words of the reply."""
        yield from self._ask("POST", text.encode(), {"Idempotency-Key": key})

    def look(self) -> dict[str, list[str]]:
        """All that was said."""
        found: dict[str, list[str]] = json.loads("".join(self._ask("GET", None, {})))
        return found

    def _ask(self, method: str, body: bytes | None, headers: dict[str, str]) -> Iterator[str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with closing(connection):
            connection.request(method, "/chats/ada", body, headers)
            answer = connection.getresponse()
            while piece := answer.read1():
                yield piece.decode()


@contextmanager
def serving(url: str, listening: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """A server on a socket that outlives it: a client that connects meanwhile waits for the next."""
    fd = listening.fileno()
    command = [sys.executable, __file__, "--fd", str(fd), url]
    with subprocess.Popen(command, pass_fds=[fd]) as server:
        try:
            yield server
        finally:
            server.terminate()


def tell(url: str, listening: socket.socket) -> None:
    """Ada talks to the service, which dies in the middle of a sentence."""
    guest = Guest(listening.getsockname()[1])
    with serving(url, listening) as server:
        print("ada:  I am Ada.\nhost: " + "".join(guest.say("I am Ada.", key="1")))
        print("ada:  My kettle leaks.\nhost: ", end="")
        with suppress(OSError, http.client.HTTPException):
            for number, words in enumerate(guest.say("My kettle leaks.", key="2")):
                print(words, end="", flush=True)
                if number == 5:
                    server.send_signal(signal.SIGKILL)
        ended = signal.Signals(-server.wait()).name
    print(f"…\n\nthe server ended with {ended}; another one starts\n")
    with serving(url, listening):
        print("ada:  My kettle leaks. (sent again)\nhost: " + "".join(guest.say("My kettle leaks.", key="2")))
        chat = guest.look()
    print("\non record:", *chat["said"], f"runs: {', '.join(chat['runs'])}", sep="\n  ")


def main(url: str | None) -> None:
    """A store, a socket, a story."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        # A store in memory would die with the first server.
        tell(f"sqlite:{folder}/chats.db" if url in (None, "memory:") else str(url), listening)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", port, *given]:
            uvicorn.run(make_app(given[0] if given else "sqlite:chats.db"), port=int(port))
        case ["--fd", fd, url]:
            uvicorn.run(make_app(url), fd=int(fd), log_level="warning")
        case given:
            main(given[0] if given else None)

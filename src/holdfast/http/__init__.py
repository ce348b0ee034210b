"""HTTP inside of tools: idempotency keys, and a record of the requests that had no answer.

    client = httpx.AsyncClient(transport=holdfast.http.AsyncTransport())

    @holdfast.tool(side_effects={"mutate"}, idempotent=True)
    async def charge(order: str, cents: int) -> str:
        answer = await client.post("https://bank.example/charges", json={"order": order, "cents": cents})

In the body of a tool with side effects, each request that may change something gets an `Idempotency-Key` that
is the same on every attempt, and is noted with the call before it is sent. Anywhere else, nothing is done.
"""

from typing import TYPE_CHECKING

from .httpx_transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from .requests_adapter import Adapter as Adapter
else:

    def __getattr__(name):
        # `requests` is imported only for its adapter.
        if name != "Adapter":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .requests_adapter import Adapter

        globals()[name] = Adapter
        return Adapter

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = ["Adapter", "AsyncTransport", "Transport"]

"""Holds a session until it is killed, and says what it took in when everything is answered.

python holder.py STORE SESSION
"""

from __future__ import annotations

import sys

import anyio

import holdfast


async def main(url: str, id: str) -> None:
    async with holdfast.open_store(url) as store, store.session(id) as session:
        print("held", flush=True)
        effects = session.state.facts.effects
        while effects.questions or effects.open:
            await session.take_in()
            await anyio.sleep(0.02)
        answers = [("approved" if one.approved else "refused") for one in effects.answers.values()]
        print(*answers, *(row.status for row in effects.rows.values()), flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])

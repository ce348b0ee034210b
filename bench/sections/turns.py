"""What a step costs beside the floor: step by step in turns, so that whatever else the machine does hits all.

    python -m bench.sections.turns STEPS DIRECTORY POSTGRES_URL SUBJECT …

measures one set of subjects, in a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.figures import Results, Turns
from bench.runner import Failed, Runner, run_module
from bench.subjects.catalogue import get_subject
from bench.subjects.contract import Place
from bench.texts import pairs

LIMIT_S = 120

SETS: Final = (
    ("raw append", "holdfast dir"),
    ("raw SQLite", "holdfast SQLite", "OpenAI SQLiteSession"),
    ("raw PostgreSQL", "holdfast PostgreSQL"),
    ("OpenAI SQLiteSession", "OpenAI SQLAlchemySession", "HoldfastSession SQLite"),
    ("OpenAI SQLAlchemySession PostgreSQL", "HoldfastSession PostgreSQL"),
)


def measure_turns(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """Each set, in turns as well."""
    measured = {one.name for one in runner.subjects}
    failed: set[tuple[str, ...]] = set()
    for _ in range(runner.plan.turn_rounds):
        for names in SETS:
            if names in failed or not measured.issuperset(names):
                continue
            try:
                with runner.place(get_subject(names[0])) as place:
                    given = (str(runner.plan.turn_steps), str(place.directory), place.postgres, *names)
                    results.turns.append(run_module(__name__, given, Turns, limit_s=LIMIT_S))
            except Failed as failure:
                failed.add(names)
                note(f"{', '.join(names)}: {failure}")


# -- in the process of its own ---------------------------------------------------------------------------


async def take_turns(steps: int, place: Place, names: Sequence[str]) -> Turns:
    """Milliseconds of a step: medians."""
    recorders = {name: get_subject(name).recorder() for name in names}
    for number, recorder in enumerate(recorders.values()):
        directory = place.directory / str(number)
        directory.mkdir()
        await recorder.open(place._replace(directory=directory), 1)
    times: dict[str, list[float]] = {name: [] for name in names}
    source = pairs()
    for number in range(steps):
        first, second = next(source)
        # Nobody is always the one who comes after somebody else.
        start = number % len(names)
        for name in (*names[start:], *names[:start]):
            began = time.perf_counter()
            await recorders[name].step(0, first, second)
            times[name].append(time.perf_counter() - began)
    for recorder in recorders.values():
        await recorder.close()
    return Turns({name: median(found) * 1000 for name, found in times.items()})


if __name__ == "__main__":
    count, folder, url, *chosen = sys.argv[1:]
    took = asyncio.run(take_turns(int(count), Place(Path(folder), url), chosen))
    sys.stdout.buffer.write(msgspec.json.encode(took))

"""A workflow of DBOS: replies and tools are steps, and a launch recovers what was under way."""

from __future__ import annotations

import asyncio

from dbos import DBOS, SetWorkflowID

from .stage import FINISHED, SESSION, Stage, number_of

_on: list[Stage] = []
"""The stage of this process: workflows are functions of a module, and recovered by their names."""


@DBOS.step()
async def ask(called: list[str], results: dict[str, str]) -> list[tuple[str, str]]:
    """A request to the model."""
    return await _on[0].reply(called, results)


@DBOS.step()
async def act(name: str, number: int) -> str:
    """A tool."""
    return await _on[0].act(name, number)


@DBOS.workflow()
async def settle() -> str:
    """The clerk's loop."""
    called: list[str] = []
    results: dict[str, str] = {}
    while calls := await ask(called, results):
        done = await asyncio.gather(*(act(name, number_of(id)) for id, name in calls))
        called += [id for id, _ in calls]
        results.update({id: said for (id, _), said in zip(calls, done, strict=True)})
    return "settled"


async def work(stage: Stage) -> str:
    """Starting a workflow under an id that is there already gives that one."""
    _on.append(stage)
    url = stage.database or f"sqlite:///{stage.folder}/dbos.sqlite"
    DBOS(config={"name": "clerk", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    with SetWorkflowID(SESSION):
        handle = await DBOS.start_workflow_async(settle)
    await handle.get_result()
    return FINISHED

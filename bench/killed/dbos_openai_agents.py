"""An agent of the OpenAI Agents SDK under `DBOSRunner`, in a workflow that a launch recovers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agents import FunctionTool, set_tracing_disabled
from dbos import DBOS, SetWorkflowID
from dbos_openai_agents import DBOSRunner

from .openai_clerk import make_agent, number_in
from .stage import FINISHED, PROMPT, SESSION, STEPS_MAX, Stage

_on: list[Stage] = []
"""The stage of this process: workflows are functions of a module, and recovered by their names."""


@DBOS.step()
async def act(name: str, number: int) -> str:
    """A tool."""
    return await _on[0].act(name, number)


def as_step(tool: FunctionTool) -> FunctionTool:
    """The tool, whose body is a step."""

    async def invoke(context: Any, arguments: str) -> str:
        said: str = await act(tool.name, number_in(arguments))
        return said

    return replace(tool, on_invoke_tool=invoke)


@DBOS.workflow()
async def settle() -> str:
    """The clerk's run."""
    result = await DBOSRunner.run(make_agent(_on[0], as_step), PROMPT, max_turns=STEPS_MAX)
    return str(result.final_output)


async def work(stage: Stage) -> str:
    """Starting a workflow under an id that is there already gives that one."""
    set_tracing_disabled(True)
    _on.append(stage)
    url = stage.database or f"sqlite:///{stage.folder}/dbos.sqlite"
    DBOS(config={"name": "clerk", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    with SetWorkflowID(SESSION):
        handle = await DBOS.start_workflow_async(settle)
    await handle.get_result()
    return FINISHED

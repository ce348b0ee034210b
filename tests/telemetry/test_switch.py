"""Without a provider, with one configured later, and without OpenTelemetry."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import metrics, trace

from holdfast import telemetry
from holdfast.telemetry import spans
from tests.agent.scripted_agents import call, fresh_store, make
from tests.telemetry.exporters import Listener, listen, nobody_listens

SOURCE = Path(__file__).resolve().parents[2] / "src"

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""

WORK = """
import anyio
import holdfast

@holdfast.tool(side_effects={"mutate"})
async def pay(what: str) -> str:
    "Pay."
    return f"{what} is paid"

async def main():
    script = [holdfast.messages.ToolCall(id="c", name="pay", args={"what": "x"}), "Done."]
    agent = holdfast.Agent(holdfast.agents.ScriptedModel(script), tools=[pay], name="clerk")
    async with holdfast.open_store("memory:") as store:
        print((await agent.run("Go", session="s", store=store)).output)
        print([run.trace async for run in store.runs(session="s")])
    print((await holdfast.Registry([pay]).dispatch("pay", {"what": "y"})).content)

anyio.run(main)
"""


def run_python(code: str) -> list[str]:
    """What the code prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_everything_works_without_opentelemetry() -> None:
    assert run_python(BLOCKED + WORK) == ["Done.", "[None]", "y is paid"]


def test_opentelemetry_is_not_imported_unless_somebody_else_does() -> None:
    assert run_python(WORK + "import sys; print('opentelemetry' in sys.modules)")[-1] == "False"


def test_another_package_of_that_name_does_no_harm() -> None:
    odd = "import sys, types; sys.modules['opentelemetry'] = types.ModuleType('opentelemetry')\n"
    assert run_python(odd + WORK)[0] == "Done."


async def test_without_a_provider_nothing_is_recorded() -> None:
    with nobody_listens():
        async with fresh_store() as store:
            await make([call("look", what="x"), "Fine."]).run("Go", session="s", store=store)
            (run,) = [one async for one in store.runs(session="s")]
        assert telemetry.active() is None
    assert run.trace is None


async def test_a_provider_that_is_configured_later_is_noticed() -> None:
    """By the next run at once, by dispatches within a moment."""
    listener = Listener()
    with nobody_listens() as patch:
        assert telemetry.active() is None
        patch.setattr(trace, "get_tracer_provider", lambda: listener.traces)
        async with fresh_store() as store:
            await make(["Fine."]).run("Go", session="s", store=store)
        assert listener.tree() == ["invoke_agent", "  step", "    chat scripted"]
        patch.setattr(telemetry, "_found", None)
        patch.setattr(telemetry, "_look_again_s", 0.0)
        assert telemetry.active() is not None


async def test_metrics_alone_are_enough() -> None:
    listener = Listener()
    with nobody_listens() as patch:
        patch.setattr(metrics, "get_meter_provider", lambda: listener.meters)
        async with fresh_store() as store:
            await make([call("look", what="x"), "Fine."]).run("Go", session="s", store=store)
            (run,) = [one async for one in store.runs(session="s")]
    assert listener.points("gen_ai.execute_tool.duration")
    assert (listener.tree(), run.trace) == ([], None)


async def test_a_tracer_that_samples_nothing_changes_nothing() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    with listen() as listener:
        listener.traces = TracerProvider(sampler=ALWAYS_OFF)
        async with fresh_store() as store:
            outcome = await make([call("look", what="x"), "Fine."]).run("Go", session="s", store=store)
    assert outcome.output == "Fine."
    assert listener.tree() == []
    assert listener.points("gen_ai.execute_tool.duration")


def test_one_module_alone_imports_opentelemetry() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opentelemetry"))
        or (isinstance(node, ast.Import) and any(one.name.startswith("opentelemetry") for one in node.names))
    }
    assert found == {"holdfast/telemetry/spans.py"}


def test_the_names_are_those_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    from holdfast.telemetry import names

    known = {
        value
        for module in (error_attributes, gen_ai_attributes, gen_ai_metrics)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    # The conventions have these since they moved to a repository of their own, the package not yet.
    assert ours - known <= {names.RUN_DURATION, names.CALL_DURATION}


def test_reporting_begins_without_reading_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run begins on the event loop; the release is known by then."""

    def fail(name: str) -> str:
        raise AssertionError(f"the metadata of {name} was read again")

    monkeypatch.setattr(spans, "version", fail)
    spans.Telemetry()

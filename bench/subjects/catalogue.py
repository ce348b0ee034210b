"""Every subject: what it is called, what it is compared with, and how durable it is. Imports no peer."""

from __future__ import annotations

import importlib
from typing import Final

import msgspec

from bench.subjects.contract import Recorder

FULL: Final = "full sync by default"


class Subject(msgspec.Struct, frozen=True):
    """What is measured."""

    name: str
    group: str
    where: str
    """Module and class in `bench.subjects`, and what it is made with."""
    package: str
    """Whose version is on the page."""
    store: str
    """`files`, `SQLite` or `PostgreSQL`."""
    durability: str
    role: str = "peer"
    """`floor`, `holdfast` or `peer`."""
    many: bool = False
    """Sessions of one store can take steps at once, all as durable as one alone."""

    def recorder(self) -> Recorder:
        """A new one, not yet opened."""
        module, name, *given = self.where.split(":")
        made: Recorder = getattr(importlib.import_module(f"bench.subjects.{module}"), name)(*given)
        return made


MESSAGES: Final = "messages"
PUTS: Final = "LangGraph checkpoints"
GRAPHS: Final = "LangGraph graphs"
STEPS: Final = "pydantic-ai step stores"
AGENTS: Final = "pydantic-ai agents"

GROUPS: Final = {
    MESSAGES: "Two messages are recorded: an `add` each and a checkpoint, `add_items`, a workflow step.",
    PUTS: "A checkpoint with a growing `messages` channel is put, as a graph with `add_messages` puts it.",
    GRAPHS: 'A graph of one node is invoked (`durability="sync"`). The framework\'s own work is included.',
    STEPS: "What the capability of pydantic-ai-harness writes for a request, a tool call and the history.",
    AGENTS: "A whole agent takes a step: a reply and a tool call. The framework's own work is included.",
}

_HARNESS, _CHECKPOINT = "pydantic-ai-harness", "langgraph-checkpoint"

SUBJECTS: Final = (
    Subject("raw append", MESSAGES, "raw:Append", "python", "files", "fdatasync after each", "floor"),
    Subject("raw SQLite", MESSAGES, "raw:Sqlite", "apsw", "SQLite", "WAL, synchronous=FULL", "floor", True),
    Subject("raw PostgreSQL", MESSAGES, "raw:Postgres", "psycopg", "PostgreSQL", FULL, "floor", True),
    Subject("holdfast dir", MESSAGES, "sessions:Sessions:dir", "holdfast", "files", FULL, "holdfast", True),
    Subject(
        "holdfast SQLite", MESSAGES, "sessions:Sessions:sqlite", "holdfast", "SQLite", FULL, "holdfast", True
    ),
    Subject(
        "holdfast PostgreSQL",
        MESSAGES,
        "sessions:Sessions:postgresql",
        "holdfast",
        "PostgreSQL",
        FULL,
        "holdfast",
        True,
    ),
    Subject(
        "OpenAI SQLiteSession", MESSAGES, "openai_agents:Sqlite", "openai-agents", "SQLite", FULL, many=True
    ),
    Subject(
        "OpenAI SQLAlchemySession",
        MESSAGES,
        "openai_agents:SqlAlchemy:sqlite",
        "openai-agents",
        "SQLite",
        FULL,
        many=True,
    ),
    Subject(
        "OpenAI SQLAlchemySession PostgreSQL",
        MESSAGES,
        "openai_agents:SqlAlchemy:postgresql",
        "openai-agents",
        "PostgreSQL",
        FULL,
        many=True,
    ),
    Subject(
        "strands FileSessionManager",
        MESSAGES,
        "strands_files:Files",
        "strands-agents",
        "files",
        "never syncs, and has no setting for it",
    ),
    Subject(
        "DBOS SQLite",
        MESSAGES,
        "dbos_workflows:Workflows:sqlite",
        "dbos",
        "SQLite",
        "full sync by default, in journal mode `delete`",
        many=True,
    ),
    Subject(
        "DBOS PostgreSQL",
        MESSAGES,
        "dbos_workflows:Workflows:postgresql",
        "dbos",
        "PostgreSQL",
        FULL,
        many=True,
    ),
    Subject(
        "HoldfastSaver SQLite",
        PUTS,
        "checkpointers:Puts:holdfast_sqlite",
        "holdfast",
        "SQLite",
        FULL,
        "holdfast",
        True,
    ),
    Subject(
        "HoldfastSaver PostgreSQL",
        PUTS,
        "checkpointers:Puts:holdfast_postgresql",
        "holdfast",
        "PostgreSQL",
        FULL,
        "holdfast",
        True,
    ),
    Subject(
        "AsyncSqliteSaver",
        PUTS,
        "checkpointers:Puts:stock_sqlite",
        f"{_CHECKPOINT}-sqlite",
        "SQLite",
        FULL,
        many=True,
    ),
    Subject(
        "AsyncPostgresSaver",
        PUTS,
        "checkpointers:Puts:stock_postgresql",
        f"{_CHECKPOINT}-postgres",
        "PostgreSQL",
        FULL,
        many=True,
    ),
    Subject(
        "graph, HoldfastSaver SQLite",
        GRAPHS,
        "graphs:Graph:holdfast_sqlite:add_messages",
        "holdfast",
        "SQLite",
        FULL,
        "holdfast",
    ),
    Subject(
        "graph, HoldfastSaver PostgreSQL",
        GRAPHS,
        "graphs:Graph:holdfast_postgresql:add_messages",
        "holdfast",
        "PostgreSQL",
        FULL,
        "holdfast",
    ),
    Subject(
        "graph, AsyncSqliteSaver",
        GRAPHS,
        "graphs:Graph:stock_sqlite:add_messages",
        f"{_CHECKPOINT}-sqlite",
        "SQLite",
        FULL,
    ),
    Subject(
        "graph, AsyncSqliteSaver, DeltaChannel",
        GRAPHS,
        "graphs:Graph:stock_sqlite:delta",
        f"{_CHECKPOINT}-sqlite",
        "SQLite",
        FULL,
    ),
    Subject(
        "graph, AsyncPostgresSaver, DeltaChannel",
        GRAPHS,
        "graphs:Graph:stock_postgresql:delta",
        f"{_CHECKPOINT}-postgres",
        "PostgreSQL",
        FULL,
    ),
    Subject("HoldfastStepStore", STEPS, "step_stores:Holdfast", "holdfast", "SQLite", FULL, "holdfast"),
    Subject("SqliteStepStore", STEPS, "step_stores:Sqlite", _HARNESS, "SQLite", FULL),
    Subject(
        "FileStepStore",
        STEPS,
        "step_stores:Files",
        _HARNESS,
        "files",
        "never syncs, and has no setting for it",
    ),
    Subject("agent, nothing kept", AGENTS, "agents:Bare", "pydantic-ai-slim", "", "keeps nothing", "floor"),
    Subject("agent, Durable", AGENTS, "agents:WithDurable", "holdfast", "SQLite", FULL, "holdfast"),
    Subject(
        "agent, Durable, mutating tool",
        AGENTS,
        "agents:WithDurableEffects",
        "holdfast",
        "SQLite",
        FULL,
        "holdfast",
    ),
    Subject("agent, SqliteStepStore", AGENTS, "agents:WithStepPersistence", _HARNESS, "SQLite", FULL),
)


def get_subject(name: str) -> Subject:
    """The one of that name."""
    return next(one for one in SUBJECTS if one.name == name)

"""Every subject: what it is called, what it is compared with, and how durable it is. Imports no peer."""

from __future__ import annotations

import importlib
from functools import partial
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
    role: str
    """`floor`, `holdfast` or `peer`."""
    many: bool
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
RUNS: Final = "OpenAI Agents runs"

GROUPS: Final = {
    MESSAGES: "Two messages are recorded: an `add` each and a checkpoint, `add_items`, a workflow step.",
    PUTS: "A checkpoint with a growing `messages` channel is put, as a graph with `add_messages` puts it.",
    GRAPHS: 'A graph of one node is invoked (`durability="sync"`). The framework\'s own work is included.',
    STEPS: "What the capability of pydantic-ai-harness writes for a request, a tool call and the history.",
    AGENTS: "A whole agent takes a step: a reply and a tool call. The framework's own work is included.",
    RUNS: "A whole run takes a step: a reply and a tool call. The SDK's own work is included.",
}

AT_ONCE: Final = frozenset({MESSAGES, PUTS})
"""Groups of which many sessions take steps at once, but for who says that it works alone."""

_FILES, _SQLITE, _PG = "files", "SQLite", "PostgreSQL"
_OPENAI, _STRANDS, _HARNESS = "openai-agents", "strands-agents", "pydantic-ai-harness"
_LITE_SAVER, _PG_SAVER = ("langgraph-checkpoint-sqlite", _SQLITE), ("langgraph-checkpoint-postgres", _PG)
_NEVER: Final = "never syncs, and has no setting for it"
_DELETE: Final = f"{FULL}, in journal mode `delete`"


def _subject(
    role: str,
    group: str,
    name: str,
    where: str,
    package: str,
    store: str,
    durability: str = FULL,
    *,
    alone: bool = False,
) -> Subject:
    many = group in AT_ONCE and not alone
    return Subject(name, group, where, package, store, durability, role, many)


def _ours(group: str, name: str, where: str, store: str) -> Subject:
    return _subject("holdfast", group, name, where, "holdfast", store)


_floor, _peer = partial(_subject, "floor"), partial(_subject, "peer")

SUBJECTS: Final = (
    _floor(MESSAGES, "raw append", "raw:Append", "python", _FILES, "fdatasync after each", alone=True),
    _floor(MESSAGES, "raw SQLite", "raw:Sqlite", "apsw", _SQLITE, "WAL, synchronous=FULL"),
    _floor(MESSAGES, "raw PostgreSQL", "raw:Postgres", "psycopg", _PG),
    _ours(MESSAGES, "holdfast dir", "sessions:Sessions:dir", _FILES),
    _ours(MESSAGES, "holdfast SQLite", "sessions:Sessions:sqlite", _SQLITE),
    _ours(MESSAGES, "holdfast PostgreSQL", "sessions:Sessions:postgresql", _PG),
    _ours(MESSAGES, "HoldfastSession SQLite", "openai_agents:Holdfast:sqlite", _SQLITE),
    _ours(MESSAGES, "HoldfastSession PostgreSQL", "openai_agents:Holdfast:postgresql", _PG),
    _peer(MESSAGES, "OpenAI SQLiteSession", "openai_agents:Sqlite", _OPENAI, _SQLITE),
    _peer(MESSAGES, "OpenAI SQLAlchemySession", "openai_agents:SqlAlchemy:sqlite", _OPENAI, _SQLITE),
    _peer(
        MESSAGES, "OpenAI SQLAlchemySession PostgreSQL", "openai_agents:SqlAlchemy:postgresql", _OPENAI, _PG
    ),
    _peer(
        MESSAGES, "strands FileSessionManager", "strands_files:Files", _STRANDS, _FILES, _NEVER, alone=True
    ),
    _peer(MESSAGES, "DBOS SQLite", "dbos_workflows:Workflows:sqlite", "dbos", _SQLITE, _DELETE),
    _peer(MESSAGES, "DBOS PostgreSQL", "dbos_workflows:Workflows:postgresql", "dbos", _PG),
    _ours(PUTS, "HoldfastSaver SQLite", "checkpointers:Puts:holdfast_sqlite", _SQLITE),
    _ours(PUTS, "HoldfastSaver PostgreSQL", "checkpointers:Puts:holdfast_postgresql", _PG),
    _peer(PUTS, "AsyncSqliteSaver", "checkpointers:Puts:stock_sqlite", *_LITE_SAVER),
    _peer(PUTS, "AsyncPostgresSaver", "checkpointers:Puts:stock_postgresql", *_PG_SAVER),
    _ours(GRAPHS, "graph, HoldfastSaver SQLite", "graphs:Graph:holdfast_sqlite:add_messages", _SQLITE),
    _ours(GRAPHS, "graph, HoldfastSaver PostgreSQL", "graphs:Graph:holdfast_postgresql:add_messages", _PG),
    _peer(GRAPHS, "graph, AsyncSqliteSaver", "graphs:Graph:stock_sqlite:add_messages", *_LITE_SAVER),
    _peer(GRAPHS, "graph, AsyncSqliteSaver, DeltaChannel", "graphs:Graph:stock_sqlite:delta", *_LITE_SAVER),
    _peer(
        GRAPHS, "graph, AsyncPostgresSaver, DeltaChannel", "graphs:Graph:stock_postgresql:delta", *_PG_SAVER
    ),
    _ours(STEPS, "HoldfastStepStore", "step_stores:Holdfast", _SQLITE),
    _peer(STEPS, "SqliteStepStore", "step_stores:Sqlite", _HARNESS, _SQLITE),
    _peer(STEPS, "FileStepStore", "step_stores:Files", _HARNESS, _FILES, _NEVER),
    _floor(AGENTS, "agent, nothing kept", "agents:Bare", "pydantic-ai-slim", "", "keeps nothing"),
    _ours(AGENTS, "agent, Durable", "agents:WithDurable", _SQLITE),
    _ours(AGENTS, "agent, Durable, mutating tool", "agents:WithDurableEffects", _SQLITE),
    _peer(AGENTS, "agent, SqliteStepStore", "agents:WithStepPersistence", _HARNESS, _SQLITE),
    _floor(RUNS, "run, nothing kept", "agent_runs:Bare", _OPENAI, "", "keeps nothing"),
    _ours(RUNS, "run, DurableRunner", "agent_runs:WithDurableRunner", _SQLITE),
    _ours(RUNS, "run, DurableRunner, mutating tool", "agent_runs:WithDurableEffects", _SQLITE),
    _floor(RUNS, "streamed run, nothing kept", "agent_runs:Streamed", _OPENAI, "", "keeps nothing"),
    _ours(RUNS, "streamed run, DurableRunner", "agent_runs:DurableStreamed", _SQLITE),
    _peer(RUNS, "run, SQLiteSession", "agent_runs:WithSqliteSession", _OPENAI, _SQLITE),
)


def get_subject(name: str) -> Subject:
    """The one of that name."""
    return next(one for one in SUBJECTS if one.name == name)

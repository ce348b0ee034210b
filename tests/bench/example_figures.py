"""Figures that were not measured, with which pages are written in tests."""

from bench.figures import Call, Growth, Mark, Results, Section, Stop, Table, Throughput, Turns

MARKS = (100, 300, 1000, 3000)
ROUND = 20
NOISE = (1.0, 1.1, 1.2, 1.1)
"""Of the machine, in rounds: the same for all, since they take turns."""


def grown(
    subject: str,
    step_ms: float,
    step_bytes: float,
    power: float = 1.0,
    *,
    until: int = 3000,
    load_ms: float = 0.02,
) -> Growth:
    """A subject whose total time and bytes grow by a power of the steps."""
    marks = [
        Mark(
            steps=steps,
            first_ms=step_ms,
            last_ms=step_ms * power * (steps / 100) ** (power - 1),
            total_s=step_ms / 1000 * 100 * (steps / 100) ** power,
            disk_bytes=int(step_bytes * 100 * (steps / 100) ** power),
            load_ms=[load_ms * steps * noise for noise in NOISE],
            new_open_ms=[1.0 * noise for noise in NOISE],
            new_load_ms=[load_ms * steps * noise for noise in NOISE],
            peek_ms=[load_ms * steps / 4 * noise for noise in NOISE],
            new_peek_ms=[load_ms * steps / 3 * noise for noise in NOISE],
        )
        for steps in MARKS
        if steps <= until
    ]
    rounds = [
        step_ms * (number * ROUND / 100) ** (power - 1) * NOISE[number % 4]
        for number in range(1, until // ROUND + 1)
    ]
    stop = Stop(until + 234, "50 s were over") if until < MARKS[-1] else None
    return Growth(subject=subject, round_steps=ROUND, rounds_ms=rounds, marks=marks, stop=stop)


def make_results() -> Results:
    """A run in which ours are ahead in most, and not in all."""
    return Results(
        about={"date": "2026-11-16", "command": "make bench", "processors": "2 × abacus"},
        versions={"holdfast": "0.1.0", "dbos": "3.3.0"},
        sections=[
            Section("growth", 60.0, ["DBOS PostgreSQL: no PostgreSQL"]),
            Section("fleet", 1.0, ["OSError: the worker did not start"]),
        ],
        growth=[
            grown("raw append", 0.2, 2000),
            grown("raw SQLite", 0.3, 2100),
            grown("holdfast dir", 0.4, 2800),
            grown("holdfast SQLite", 0.4, 4000),
            grown("OpenAI SQLiteSession", 0.6, 2800),
            grown("OpenAI SQLAlchemySession", 2.3, 2850),
            grown("strands FileSessionManager", 0.25, 2700, 1.2),
            grown("DBOS SQLite", 2.5, 2100),
            grown("HoldfastSaver SQLite", 0.6, 5000),
            grown("AsyncSqliteSaver", 1.2, 100_000, 2.0),
            grown("HoldfastStepStore", 1.5, 6000),
            grown("SqliteStepStore", 20, 20_000, 1.9, until=1000),
            grown("FileStepStore", 10, 40_000, 2.8, until=300, load_ms=0.01),
            grown("agent, nothing kept", 8, 0, 1.9, until=1000),
            grown("agent, Durable", 9, 3000, 1.85, until=1000),
        ],
        turns=[
            Turns({"raw SQLite": 0.3, "holdfast SQLite": took, "OpenAI SQLiteSession": 0.6})
            for took in (0.39, 0.42, 0.36)
        ],
        throughput=[
            Throughput(subject, sessions, 1, False, [rate * gain * noise for noise in NOISE])
            for subject, rate in (
                ("raw SQLite", 4000.0),
                ("holdfast SQLite", 2500.0),
                ("OpenAI SQLiteSession", 1500.0),
                ("AsyncSqliteSaver", 900.0),
                ("HoldfastSaver SQLite", 700.0),
            )
            for sessions, gain in (
                (1, 1.0),
                (10, 3.0 if "SQLite" in subject[-6:] else 1.0),
                (100, 9.0 if "SQLite" in subject[-6:] else 1.0),
                (1000, 10.0 if "SQLite" in subject[-6:] else 0.9),
            )
        ],
        dispatch={
            "pydantic alone": [Call(2.0, 1.5), Call(3.0, 2.5)],
            "pure": [Call(40.0, 31.5), Call(60.0, 32.5)],
            "read": [Call(50.0, 41.5), Call(70.0, 42.5)],
            "two raw commits": [Call(300.0, 100.0), Call(600.0, 100.0)],
            "mutate": [Call(600.0, 100.0), Call(1200.0, 100.0)],
        },
        proxy={
            "no tool, directly": [20.0, 30.0],
            "no tool, through the proxy": [120.0, 150.0],
            "a tool that acts, directly": [20.0, 40.0],
            "a tool that acts, through the proxy": [1020.0, 1060.0],
            "two raw commits": [600.0, 700.0],
        },
        crashes=Table("Killed, and resumed", ["killed", "holdfast"], [["in the effect", "once"]], ["a note"]),
        crash_tests=Table("Killed at each", ["boundaries", "seconds"], [["301", "96.5"]]),
    )

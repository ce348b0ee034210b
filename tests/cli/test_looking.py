"""`sessions`, `show`, `tail`, `diff`, `export`, `stats` tell what happened, and change nothing."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.blocking
from tests.cli.cli_processes import call, held


def moments(shop: Path, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(shop, f"show {session} --json").json["timeline"]
    return found


def test_sessions_stand_where_they_stand(stocked: Path) -> None:
    """Completed, waiting, interrupted; the latest first; filtered by what one asks for."""
    listed = call(stocked, "sessions --json").json["sessions"]
    standing = {one["session"]: one["standing"] for one in listed}
    helper = next(name for name in standing if name.startswith("family."))
    assert standing == {
        "done": "completed",
        "killed": "completed",
        "doubtful": "interrupted",
        "asking": "waiting",
        "family": "completed",
        helper: "completed",
        "erring": "completed",
        "torn": "interrupted",
        "forked": "idle",
    }
    updated = [datetime.fromisoformat(one["updated_at"]) for one in listed]
    assert updated == sorted(updated, reverse=True)
    assert all(one["updated_at"].endswith("Z") for one in listed)

    def ids(options: str) -> set[str]:
        return {one["session"] for one in call(stocked, f"sessions {options} --json").json["sessions"]}

    assert ids("--interrupted") == {"doubtful", "torn"}
    assert ids("--label tenant=acme") == {"done", "asking", "forked"}
    assert ids("--label tenant=acme --status waiting") == {"asking"}
    assert ids("--parent family") == {helper}
    assert len(ids("--limit 2")) == 2


def test_the_list_tells_sessions_that_are_held_from_idle_ones(shop: Path) -> None:
    """By the process that holds it: when that is killed, the session is idle again."""

    def standing() -> tuple[str, str, str]:
        (one,) = [one for one in call(shop, "ls --json").json["sessions"] if one["session"] == "forked"]
        (line,) = [line for line in call(shop, "ls").out.splitlines() if line.split()[:1] == ["forked"]]
        return one["standing"], one["status"], line.split()[1]

    assert standing() == ("idle", "active", "idle")
    with held(shop, "forked"):
        assert standing() == ("held", "active", "held")
    assert standing() == ("idle", "active", "idle")


def test_a_table_says_what_needs_attention(stocked: Path) -> None:
    """What waits and what is in doubt stands beside the session."""
    shown = call(stocked, "sessions").out
    (doubtful,) = [line for line in shown.splitlines() if line.strip().startswith("doubtful")]
    assert "interrupted (1 in doubt)" in doubtful
    (asking,) = [line for line in shown.splitlines() if line.strip().startswith("asking")]
    assert "waiting (1 to approve)" in asking
    limited = call(stocked, "sessions --limit 1")
    assert "8 more sessions" in limited.err


def test_a_kill_is_where_it_happened(stocked: Path) -> None:
    """Who was gone, what was unfinished, who took over, and which run goes on from which."""
    shown = call(stocked, "show killed --json").json
    first, second = shown["leases"]
    assert (first["ended"], second["ended"]) == ("lost", "released")
    assert first["fence"] < second["fence"]
    kinds = [one["kind"] for one in shown["timeline"]]
    lost = kinds.index("lost")
    assert kinds[lost - 1 : lost + 3] == ["model", "lost", "lease", "run"]
    moment = shown["timeline"][lost]
    assert first["name"] in moment["what"]
    assert second["name"] in moment["what"]
    assert moment["detail"] == "not finished: look_up"
    before, after = shown["tree"]["runs"]
    assert (before["status"], after["status"]) == ("interrupted", "completed")
    assert after["continues"] == before["run"]
    text = call(stocked, "show killed").out
    assert f"×   {first['name']} is gone and did not release its lease" in text
    assert f"continues {before['run']}" in text


def test_a_session_that_nobody_took_over_yet_says_so(stocked: Path) -> None:
    """An effect that was under way is in doubt, although no process has recorded that yet."""
    shown = call(stocked, "show doubtful --json").json
    assert shown["leases"][-1]["ended"] == "lost"
    assert "no process has taken over yet" in shown["timeline"][-1]["what"]
    (charge,) = [one for one in shown["timeline"] if one["tool"] == "charge"]
    assert charge["status"] == "in_doubt"
    assert "charge" in shown["problems"][0]


def test_steps_have_times_and_costs(stocked: Path) -> None:
    """Those of the steps add up to those of the session."""
    shown = call(stocked, "show done --json").json
    assert [one["version"] for one in shown["steps"] if one["version"]] == [1, 2, 3, 4, 5]
    assert sum(one["usd"] for one in shown["steps"]) == pytest.approx(shown["session"]["usd"])
    models = [one for one in shown["timeline"] if one["kind"] == "model"]
    assert all(one["status"] == "replied" and one["took_s"] >= 0 and one["usd"] > 0 for one in models)
    tools = {one["tool"]: one["status"] for one in shown["timeline"] if one["tool"]}
    assert tools == {"look_up": "completed", "book": "completed"}
    assert [one["version"] for one in shown["checkpoints"]] == [1, 2, 3, 4, 5]


def test_delegates_hang_below_the_run_that_asked_them(stocked: Path) -> None:
    """As a tree, with what each of them spent."""
    tree = call(stocked, "show family --json").json["tree"]
    (run,) = tree["runs"]
    (helper,) = run["delegates"]
    assert helper["session"].startswith("family.helper-")
    assert helper["runs"][0]["parent"]["run"] == run["run"]
    assert 0 < helper["usd"] < tree["usd"]
    text = call(stocked, "show family").out
    assert text.index(run["run"]) < text.index(f"└── {helper['session']}")


def test_a_fork_begins_with_the_line_that_made_it(stocked: Path) -> None:
    """What came before is its origin's to tell; the versions are there all the same."""
    shown = call(stocked, "show forked --json").json
    assert [one["what"] for one in shown["timeline"]] == ["forked from done, version 2"]
    assert shown["inherited_entries"] > 0
    assert [one["version"] for one in shown["checkpoints"]] == [1, 2]


def test_replays_refusals_and_rewinds_are_told(shop: Path) -> None:
    """A call that was made before gives what it gave, and says so."""
    assert call(shop, "rewind done --version 3").code == 0
    assert call(shop, "run clerk.py '12 please' --session done").code == 0
    told = moments(shop, "done")
    assert any(one["what"] == "rewound to version 3" for one in told)
    (replayed,) = [one for one in told if one["status"] == "replayed"]
    assert "booked 12" in replayed["detail"]
    refused = [one["what"] for one in moments(shop, "erring") if one["kind"] == "refused"]
    assert [what.split(":")[0] for what in refused] == [
        "lok_up refused (name)",
        "look_up refused (arguments)",
    ]


def test_the_end_of_a_timeline_can_be_had_alone(stocked: Path) -> None:
    """And so can all the rest."""
    assert len(call(stocked, "show done --last 3 --json").json["timeline"]) == 3
    brief = call(stocked, "show done --brief").out
    assert "timeline" not in brief
    assert "versions" in brief


def test_tail_prints_entries_and_goes_on_after_one(stocked: Path) -> None:
    """For people a line each; for programs with body and content."""
    lines = call(stocked, "tail done -n 3").out.splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("lease released")
    entries = [json.loads(line) for line in call(stocked, "tail done -n 0 --json").out.splitlines()]
    assert [one["seq"] for one in entries] == list(range(1, len(entries) + 1))
    later = call(stocked, f"tail done --after {len(entries) - 2} --json").out.splitlines()
    assert [json.loads(line) for line in later] == entries[-2:]
    user = next(one for one in entries if one["kind"] == "message.added")
    assert user["content"]["blocks"][0]["text"] == "Refund order 42"


def test_a_diff_tells_what_was_added_and_removed(shop: Path) -> None:
    """Towards the newer version and back; equal ones are equal."""
    forth = call(shop, "diff done 4 --json").json
    assert [one["blocks"][0]["text"] for one in forth["messages_added"]] == ["Booked."]
    assert forth["spending"]["steps"] == 1
    back = call(shop, "diff done 5 4")
    assert back.out.startswith("- assistant: Booked.\n")
    same = call(shop, "diff done 2 2")
    assert (same.code, same.err) == (0, "versions 2 and 2 are the same\n")
    assert call(shop, "diff done 1 99").code == 3


def test_every_form_of_export_has_it_all(shop: Path) -> None:
    """To stdout, or to a file that was not there."""
    text = call(shop, "export done").out
    assert 'assistant → book(room="12")' in text
    assert "result: booked 12" in text
    markdown = call(shop, "export done --form markdown").out
    assert markdown.startswith("# Refund order 42\n")
    assert "## Assistant\n" in markdown
    first = call(shop, "export done --version 1").out
    assert "Order 42 is refunded." not in first
    lines = call(shop, "export done --form jsonl").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    log = [json.loads(line) for line in call(shop, "export done --form experiment").out.splitlines()]
    assert [one["content"] for one in log][:2] == ["I will look.", "Order 42 is refunded."]
    assert {"t", "iter", "agent_id", "role", "metadata", "actions", "latency_ms"} < set(log[0])
    assert call(shop, "export done -o out.txt").err == "wrote out.txt\n"
    assert (shop / "out.txt").read_text() == text
    again = call(shop, "export done -o out.txt")
    assert again.code == 2
    assert "exists already" in again.err
    assert call(shop, "export done --form pdf").code == 2


FOREIGN: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ],
    "anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"n": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "18 degrees"}]},
    ],
    "openai-responses": [
        {
            "object": "response",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Let me see."}],
                },
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"n": 1}'},
            ],
        },
        {"type": "function_call_output", "call_id": "c1", "output": "18 degrees"},
    ],
    "pydantic-ai": [
        {
            "kind": "response",
            "parts": [
                {"part_kind": "text", "content": "Let me see."},
                {"part_kind": "tool-call", "tool_name": "look", "tool_call_id": "c1", "args": '{"n": 1}'},
            ],
        },
        {
            "kind": "request",
            "parts": [
                {
                    "part_kind": "tool-return",
                    "tool_name": "look",
                    "tool_call_id": "c1",
                    "content": "18 degrees",
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("format", FOREIGN)
def test_sessions_in_foreign_formats_are_exported_for_people(tmp_path: Path, format: str) -> None:
    """Text, calls with their arguments and results in full, not the JSON of the format."""
    words = "It is warm today, and it will stay so. " * 5
    last = {"kind": "response", "parts": [{"part_kind": "text", "content": words}]}
    with (
        holdfast.blocking.open_store(f"sqlite:{tmp_path}/holdfast.db") as store,
        store.session("s") as session,
    ):
        with session.run(agent="clerk"):
            for message in FOREIGN[format]:
                session.add(message, format=format)
            is_theirs = format == "pydantic-ai"
            session.add(last if is_theirs else {"role": "assistant", "content": words}, format=format)
    at = f"--store sqlite:{tmp_path}/holdfast.db"
    text = call(tmp_path, f"export s {at}").out
    assert "assistant: Let me see.\nassistant → look(n=1)\n" in text
    assert "result: 18 degrees\n" in text
    assert f"assistant: {words}\n" in text
    markdown = call(tmp_path, f"export s {at} --form markdown").out
    assert "Let me see.\n\n**look** (`c1`)\n\n```json\n{" in markdown
    assert "result of `c1`:\n\n```\n18 degrees\n```\n" in markdown
    assert words in markdown
    log = [json.loads(line) for line in call(tmp_path, f"export s {at} --form experiment").out.splitlines()]
    assert [(one["agent_id"], one["content"]) for one in log] == [("clerk", "Let me see."), ("clerk", words)]


def test_stats_count_what_was_spent_once(stocked: Path) -> None:
    """Delegates are in their parent's bill, and forks in their origin's: neither counts twice here."""
    stats = call(stocked, "stats --json").json
    listed = call(stocked, "sessions --json").json["sessions"]
    roots = [one for one in listed if one["parent"] is None and one["origin"] is None]
    assert stats["usd"] == pytest.approx(sum(one["usd"] for one in roots))
    assert stats["sessions"] == {"completed": 5, "interrupted": 2, "waiting": 1, "idle": 1}
    assert stats["takeovers"] == 1
    assert stats["runs"]["interrupted"] == 3
    assert stats["tools"]["charge"]["outcomes"] == {"in_doubt": 1}
    assert stats["model"]["count"] == 19
    assert call(stocked, "stats done --json").json["steps"] == 5


def test_stats_say_how_often_the_next_call_was_right(stocked: Path) -> None:
    """By gate and tool: the misspelt name was followed by bad arguments, these by a good call."""
    stats = call(stocked, "stats --json").json
    assert stats["refusals"] == [
        {"gate": "arguments", "tool": "look_up", "count": 1, "followed": 1, "next_right": 1},
        {"gate": "name", "tool": "lok_up", "count": 1, "followed": 1, "next_right": 0},
    ]
    assert "1 of 1" in call(stocked, "stats").out


def test_a_call_that_its_own_process_leaves_in_doubt_is_one_row(tmp_path: Path) -> None:
    """With why, what its hook said, and what it noted; a result that cannot be kept is an error there."""

    @holdfast.tool(side_effects={"mutate"}, verify=lambda: False)
    async def pay(ctx: holdfast.ToolContext[None]) -> None:
        await ctx.annotate(vendor="v-1")
        raise OSError("reset")

    @holdfast.tool(side_effects={"mutate"})
    async def book() -> object:
        return object()

    registry = holdfast.blocking.Registry([pay, book])
    with (
        holdfast.blocking.open_store(f"sqlite:{tmp_path}/holdfast.db") as store,
        store.session("s") as session,
    ):
        registry.dispatch("pay", {}, session=session)
        registry.dispatch("book", {}, session=session)
    paid, booked = [one for one in moments(tmp_path, "s") if one["kind"] == "tool"]
    assert (paid["status"], booked["status"]) == ("in_doubt", "completed")
    assert paid["detail"].startswith("it raised OSError: reset; verify returned False, not Landed(result)")
    assert paid["notes"] == {"vendor": "v-1"}
    assert booked["detail"].startswith(
        "book: it ran, and its side effects are done. Its result, of type object,"
    )
    shown = call(tmp_path, "show s", COLUMNS="250").out
    assert "it raised OSError: reset; verify returned False, not Landed(result)" in shown
    assert 'noted: vendor="v-1"' in shown

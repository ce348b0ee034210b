"""People answer from the command line, whether or not another process holds the session."""

import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.cli_processes import call, held


def said_by(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_what_waits_is_listed_with_the_command_that_answers_it(shop: Path) -> None:
    """The command is exact: it is run as it stands, and nothing waits any more."""
    listed = call(shop, "pending --json").json["pending"]
    assert [(one["kind"], one["session"], one["call"], one["tool"]) for one in listed] == [
        ("in_doubt", "doubtful", "c-charge", "charge"),
        ("approval", "asking", "c-refund", "refund"),
        ("in_doubt", "deleted", "c-announce", "announce"),
    ]
    assert listed[1]["args"] == {"order": "42", "cents": 9900}
    shown = call(shop, "pending").out
    commands = (
        listed[0]["commands"]["landed"],
        listed[1]["commands"]["refuse"],
        listed[2]["commands"]["landed"],
    )
    for command in commands:
        assert f"  {command}\n" in shown
        assert call(shop, command.removeprefix("holdfast ")).code == 0
    left = call(shop, "pending")
    assert (left.code, left.out, left.err) == (0, "", "nothing waits for you\n")


def test_what_is_in_doubt_is_listed_with_what_its_hook_said_and_what_it_noted(shop: Path) -> None:
    """A process is killed after a request without an answer, and the next one cannot find out: the person
    who has to is told all of it, in `pending` and in `show`."""
    run = call(shop, "run clerk.py 'Pay it' --session paying", CLERK_DIES_IN="pay")
    assert run.code == -signal.SIGKILL
    for _ in range(2):
        waits = call(shop, "resume clerk.py paying")
        assert waits.code == 5
        assert "of pay: verify raised ConnectionError: the bank is down" in waits.err
    (listed,) = call(shop, "pending paying --json").json["pending"]
    crash = "the process that ran it is gone and left no outcome"
    assert listed["why"] == f"{crash}; verify raised ConnectionError: the bank is down"
    assert listed["notes"]["vendor"] == "v-1"
    key = listed["notes"]["requests"][1]["key"]
    shown = call(shop, "pending paying", COLUMNS="250").out
    for line in (
        listed["why"],
        'noted: vendor="v-1"',
        "noted: POST https://bank.example/pay: status 503",
        f"noted: POST https://bank.example/pay: no answer, key {key}",
    ):
        assert f"  {line}\n" in shown
    report = call(shop, "show paying", COLUMNS="250").out
    (row,) = [line for line in report.splitlines() if "→" in line]
    assert f'pay(order="42")  in doubt  {listed["why"]}' in row
    assert report.count("verify raised ConnectionError") == 1
    assert 'noted: vendor="v-1"' in report
    assert "POST https://bank.example/pay: status 503" in report
    assert f"call c-pay is in doubt: {listed['why']}" in call(shop, "show paying --all", COLUMNS="250").out
    entries = call(shop, "tail paying -n 0 --json").out.splitlines()
    assert sum('"kind":"tool.in_doubt"' in entry for entry in entries) == 1, "the same reason, twice"
    (shop / "bank-is-up").touch()
    assert call(shop, "resume clerk.py paying --quiet").out == "Paid.\n"
    assert call(shop, "pending paying").err == "nothing waits for you\n"


def test_the_command_names_the_store_where_it_must(shop: Path) -> None:
    """Copied into another shell, it finds the same store."""
    (shop / "other dir").mkdir()
    (shop / "holdfast.db").rename(shop / "other dir" / "agents.db")
    url = "sqlite:other dir/agents.db"
    (one,) = call(shop, f"pending asking --json --store {shlex.quote(url)}").json["pending"]
    assert one["commands"]["approve"] == f"holdfast approve asking c-refund --store {shlex.quote(url)}"
    (one,) = call(shop, "pending asking --json", HOLDFAST_STORE=url).json["pending"]
    assert one["commands"]["approve"] == "holdfast approve asking c-refund"


def test_an_approval_is_taken_in_at_once_if_nobody_holds_the_session(shop: Path) -> None:
    """With corrected arguments, recorded with the person who approved; then the agent goes on."""
    line = """approve asking c-refund --args '{"order": "42", "cents": 1}' --note fair --json"""
    assert call(shop, line).json["outcome"] == "settled"
    resumed = call(shop, "resume clerk.py asking")
    assert (resumed.code, resumed.out) == (0, "Done as you said.\n")
    entries = call(shop, "tail asking -n 0").out
    assert "ann approved c-refund fair" in entries
    assert "refunded 1 for 42" in entries


def test_a_refusal_is_told_to_the_model(shop: Path) -> None:
    """With its reason."""
    assert call(shop, "refuse asking c-refund --reason 'no receipt' --by bob").code == 0
    assert call(shop, "resume clerk.py asking").code == 0
    assert "refund: refused by bob. no receipt" in call(shop, "export asking").out


def test_a_verdict_is_taken_in_at_once_if_nobody_holds_the_session(shop: Path) -> None:
    """The result is what was said, as data; the call is never made again."""
    done = call(shop, """resolve doubtful c-charge landed --result '{"receipt": 7}' --json""")
    assert done.json == {
        "session": "doubtful",
        "call": "c-charge",
        "answer": "landed",
        "outcome": "settled",
    }
    assert call(shop, "resume clerk.py doubtful --quiet").out == "Charged.\n"
    shown = call(shop, "show doubtful --json").json
    (charge,) = [one for one in shown["timeline"] if one["tool"] == "charge"]
    assert charge["status"] == "in_doubt", "it was, when it was last seen"
    (settled,) = [one for one in shown["timeline"] if one["call"] == "c-charge" and one is not charge]
    assert (settled["what"], settled["status"]) == ("call c-charge settled by ann", "landed")
    assert settled["detail"] == '{"receipt":7}'
    assert '{"receipt":7}' in call(shop, "export doubtful").out


@pytest.mark.parametrize(
    ("session", "line", "taken_in"),
    [
        ("asking", "approve asking c-refund", "approved"),
        ("asking", "refuse asking c-refund", "refused"),
        ("doubtful", "resolve doubtful c-charge landed --result ok", "completed"),
        ("doubtful", "resolve doubtful c-charge not-landed", "not_landed"),
    ],
)
def test_an_answer_reaches_whoever_holds_the_session(
    session: str, line: str, taken_in: str, shop: Path
) -> None:
    """The process that holds it takes it in while it works; who answers need not wait for it."""
    with held(shop, session) as holder:
        (waiting,) = call(shop, f"pending {session} --json").json["pending"]
        assert waiting["session"] == session
        answered = call(shop, f"{line} --json")
        assert (answered.code, answered.json["outcome"]) == (0, "posted")
        assert taken_in in said_by(holder).split()
    assert call(shop, f"pending {session}").err == "nothing waits for you\n"


def test_an_answer_that_comes_too_late_is_an_error(shop: Path) -> None:
    """It changed nothing, and says so."""
    assert call(shop, "resolve doubtful c-charge gave-up").code == 0
    late = call(shop, "resolve doubtful c-charge gave-up")
    assert late.code == 1
    assert late.err.startswith("holdfast: too late: c-charge")


def test_calls_are_named_by_id_or_by_entry(shop: Path) -> None:
    """What is not there is told with what is."""
    (one,) = call(shop, "pending doubtful --json").json["pending"]
    assert call(shop, f"resolve doubtful @{one['entry']} gave-up").code == 0
    missing = call(shop, "approve asking c-refudn")
    assert missing.code == 3
    assert "c-refund" in missing.err
    assert call(shop, "approve asking c-refund --args {").code == 2
    assert call(shop, "resolve asking c-refund maybe").code == 2


def test_messages_and_requests_to_stop_reach_whoever_comes_next(shop: Path) -> None:
    """Durable at once; equal keys are one message."""
    for _ in range(2):
        assert call(shop, "submit done 'Look again' --key k1").code == 0
    assert call(shop, "submit done -", "from a pipe\n").code == 0
    assert call(shop, "cancel torn --reason maintenance").code == 0
    resumed = call(shop, "resume clerk.py done --json")
    assert resumed.json["status"] == "completed"
    transcript = call(shop, "export done").out
    assert transcript.count("user: Look again") == 1
    assert "user: from a pipe" in transcript
    stopped = call(shop, "resume clerk.py torn")
    assert stopped.code == 7
    assert "cancelled (maintenance)" in stopped.err


def test_an_operation_of_a_deleted_session_is_resolved_by_its_name(shop: Path) -> None:
    """The error names the command."""
    asked = call(shop, "run clerk.py 'Announce it' --session first")
    assert "is blocked" not in asked.out
    told = call(shop, "export first --form jsonl").out
    (command,) = set(re.findall(r"holdfast (resolve-operation \w+ landed)", told))
    (listed,) = call(shop, "pending deleted --json").json["pending"]
    assert (listed["kind"], listed["tool"], listed["entry"] > 0) == ("in_doubt", "announce", True)
    assert listed["commands"]["landed"].startswith(f"holdfast {command} --result")
    assert f"holdfast {command}" in call(shop, "pending").out
    assert call(shop, f"{command} --result seen").err.startswith("landed: recorded for operation")
    assert call(shop, "pending deleted").code == 3
    late = call(shop, command)
    assert (late.code, late.err.split(":")[1]) == (1, " too late")
    assert call(shop, "run clerk.py 'Announce it' --session second").code == 0
    assert "idempotent replay of c-announce in session deleted]: seen" in call(shop, "export second").out
    assert call(shop, "resolve-operation nonsense landed").code == 3

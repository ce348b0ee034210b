"""What goes wrong is one line on stderr, with what to do, and a code; and `--help` starts fast."""

import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from holdfast import open_store
from holdfast.cli import main
from holdfast.cli.app import make_app
from holdfast.cli.entry_point import command_first
from holdfast.cli.options import COMMON_OPTIONS
from tests.cli.cli_processes import ROOT, Done, call, environment

HEAVY = (
    "apsw",
    "pydantic",
    "msgspec",
    "holdfast.session",
    "holdfast.store",
    "holdfast.agents",
    "holdfast.public",
)


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("show kiled", 3, "no session kiled; did you mean killed?"),
        ("export don", 3, "did you mean done?"),
        ("show 'Do ne'", 3, "did you mean done?"),
        ("show quetzalcoatl", 3, "`holdfast sessions` lists them all"),
        ("show a/b", 2, "allowed are A-Z a-z 0-9"),
        ("show", 2, "SESSION requires an argument"),
        ("frok done", 2, 'Did you mean "fork"?'),
        ("sessions --statsu waiting", 2, "--status"),
        ("sessions --label tenant", 2, "name=value"),
        ("sessions --store agents.db", 2, "did you mean 'sqlite:agents.db'"),
        ("sessions --store sqllite:agents.db", 2, "did you mean 'sqlite:agents.db'"),
        ("rewind done", 2, "--version N or --steps N"),
        ("rewind done --version 77", 3, "version 77 does not exist"),
        ("fork done --into killed", 2, "exists already"),
        ("resume clerk.py", 2, "--all"),
        ("submit missing hello", 3, "no session missing"),
        ("run clerk.py --nope", 2, "looks like an option"),
        ("sessions --limit -3", 2, "must not be negative"),
        ("tail done -n -3", 2, "must not be negative"),
        ("tail done --after -3", 2, "must not be negative"),
        ("show done --last -3", 2, "must not be negative"),
        ("submit done ''", 2, "the message is empty"),
        ("approve done c-x", 3, "session 'done' asks nothing about 'c-x'; to approve: none"),
        ("resolve done c-x landed", 3, "session 'done' issued no call 'c-x'; in doubt: none"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    line: str, code: int, says: str, stocked: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """And has a code that programs can tell it by."""
    done = call_here(stocked, line)
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "sessions",
        "show x",
        "pending",
        "stats",
        "tail x",
        "resume clerk.py x",
        "submit x hello",
        "clean x --yes",
    ],
)
def test_only_run_makes_a_store(line: str, tmp_path: Path, call_here: Callable[[Path, str], Done]) -> None:
    """Reading a store that does not exist is an error, and creates nothing."""
    shutil.copy(Path(__file__).with_name("clerk.py"), tmp_path)
    run = call if line.startswith("resume") else call_here
    done = run(tmp_path, line)
    assert done.code == 3
    assert (
        done.err
        == "holdfast: there is no store at holdfast.db: name one with --store, or set HOLDFAST_STORE\n"
    )
    assert {path.name for path in tmp_path.iterdir()} <= {"clerk.py", "__pycache__"}


def test_the_store_is_named_by_option_environment_or_default(shop: Path) -> None:
    """In this order, and the option may stand before the command."""
    (shop / "holdfast.db").rename(shop / "mine.db")
    assert call(shop, "sessions").code == 3
    assert call(shop, "sessions", HOLDFAST_STORE="sqlite:mine.db").code == 0
    assert call(shop, "sessions --store sqlite:mine.db", HOLDFAST_STORE="sqlite:other.db").code == 0
    assert call(shop, "--store sqlite:mine.db --json sessions").json["total"] == 9
    assert call(shop, "--store=sqlite:mine.db sessions").code == 0


WITHOUT_STORE = ("demo", "completion", "mcp")
COMMANDS = [name for name in make_app() if not name.startswith("-") and name not in WITHOUT_STORE]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_common_option_may_stand_before_every_command(command: str) -> None:
    """Alone or with the others, with its value behind it or joined to it: one list says which there are."""
    given = ["--store", "sqlite:a.db", "--json", "--blobs=dir:b", command, "x"]
    assert command_first(given) == [command, "--store", "sqlite:a.db", "--json", "--blobs=dir:b", "x"]
    parameters = make_app()[command].assemble_argument_collection()
    known = {name for argument in parameters for name in argument.names}
    assert set(COMMON_OPTIONS) <= known
    assert {
        name: argument.hint is not bool for argument in parameters for name in argument.names
    }.items() >= COMMON_OPTIONS.items()


def test_the_home_of_blobs_may_be_named_before_the_command(
    shop: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """As the store may."""
    (shop / "home").mkdir()
    anyio.run(_keep_outside, shop)
    for line in (
        "--blobs dir:home sessions",
        "--blobs=dir:home --json sessions",
        "sessions --blobs dir:home",
        "--json --store sqlite:holdfast.db --blobs dir:home blobs",
    ):
        done = call_here(shop, line)
        assert done.code == 0, done
    listed = call_here(shop, "blobs --blobs dir:home")
    assert "100.0 kB" in listed.out
    again = call_here(shop, "--blobs dir:home blobs gc --grace 0 --alone")
    assert "holdfast blobs gc --remove --blobs dir:home" in again.err


async def _keep_outside(shop: Path) -> None:
    async with open_store(f"sqlite:{shop}/holdfast.db", blobs=f"dir:{shop}/home") as store:
        await store.put_blob(bytes(100_000), name="cat.png")


def test_a_home_of_blobs_that_is_missing_is_named_with_its_own_option(
    shop: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """Whatever was named, the advice is how to name another."""
    for line in ("sessions --blobs dir:nowhere", "--blobs dir:nowhere blobs"):
        done = call_here(shop, line)
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            "holdfast: there is no home of blobs at nowhere: name one with --blobs, or set HOLDFAST_BLOBS\n"
        )
    assert not (shop / "nowhere").exists()


def test_a_damaged_store_is_an_error_without_a_traceback(shop: Path) -> None:
    """Whatever the file holds."""
    (shop / "bad.db").write_text("this is no database, and was never one\n" * 100)
    done = call(shop, "sessions --store sqlite:bad.db")
    assert done.code in (1, 2)
    assert "Traceback" not in done.err


def test_a_damaged_session_is_named_and_hides_no_other(shop: Path) -> None:
    """In the list for people, and in that for programs."""
    shutil.copy(shop / "holdfast.db", shop / "hurt.db")
    connection = sqlite3.connect(shop / "hurt.db")
    (name,) = connection.execute("SELECT min(session) FROM sessions").fetchone()
    connection.execute("UPDATE sessions SET head = 'junk' WHERE session = ?", (name,))
    connection.commit()
    connection.close()
    whole = call(shop, "--store sqlite:holdfast.db --json sessions").json
    found = call(shop, "--store sqlite:hurt.db --json sessions").json
    assert [one["session"] for one in found["damaged"]] == [name]
    assert found["total"] == whole["total"] - 1
    done = call(shop, "--store sqlite:hurt.db sessions")
    assert done.code == 0
    assert f"{name} is damaged" in done.err
    for command in ("pending", "stats", "workers"):
        done = call(shop, f"--store sqlite:hurt.db {command}")
        assert (done.code, "Traceback" in done.err) == (0, False), done.err


@pytest.mark.parametrize("line", ["--help", "show --help", "run --help", "--version", "completion bash"])
def test_help_imports_nothing_heavy(line: str, tmp_path: Path) -> None:
    """No store, no agent, no validation: help is fast."""
    script = (
        "import sys\n"
        "from holdfast.cli import main\n"
        f"code = main({line.split()!r})\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(*loaded, file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert done.stdout


def test_a_shell_completes_commands_and_sessions(stocked: Path) -> None:
    """Bash itself: what it offers is what is there."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    script = (
        f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}\n'
        'eval "$(holdfast completion bash)"\n'
        'complete_line() { COMP_WORDS=($1 "$2"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()\n'
        '_holdfast 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"; }\n'
        'complete_line "holdfast" "re"; echo --; complete_line "holdfast show" "do"\n'
    )
    done = subprocess.run(
        [bash, "-c", script], cwd=stocked, env=environment(), capture_output=True, text=True, timeout=60
    )
    commands, _, sessions = done.stdout.partition("--\n")
    assert {one.strip() for one in commands.split()} == {
        "refuse",
        "replay",
        "resume",
        "resolve",
        "resolve-operation",
        "rewind",
    }
    assert {one.split()[0] for one in sessions.splitlines() if one.strip()} == {"done", "doubtful"}


def test_the_installed_command_is_this_one() -> None:
    """What the package installs as `holdfast` is what these tests start."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"holdfast": f"{main.__module__}:{main.__name__}"}

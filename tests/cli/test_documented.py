"""`docs/cli.md` and `--help` say what is there, and every invocation in them works."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cli.app import ALIASES, EXAMPLES, make_app
from holdfast.cli.commands.export import FORMS
from holdfast.cli.exit_codes import MEANINGS
from tests.cli.cli_processes import Done, Terminal, call, end, environment, start
from tests.docs.blocks import ROOT, find_blocks

PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text()
INVOCATIONS = [
    line
    for page in (PAGE, ROOT / "README.md")
    for block in find_blocks(page, "sh")
    for line in block.source.splitlines()
    if "holdfast " in line
]
WAITS = {"holdfast resume clerk.py --all"}
OTHER_NAMES = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
COMMANDS = [name for name in make_app() if not name.startswith("-") and name not in OTHER_NAMES]


def documented_keys() -> dict[str, set[str]]:
    """What the page says about the object of each command."""
    table = TEXT.split("| command | keys of the object |", 1)[1].split("\n\n", 1)[0]
    found: dict[str, set[str]] = {}
    for row in table.splitlines()[2:]:
        names, keys = row.strip("| ").split(" | ")
        found.update({name: set(re.findall(r"`(\w+)`", keys)) for name in re.findall(r"`([\w-]+)`", names)})
    return found


def test_every_command_has_its_place_on_the_page() -> None:
    """A heading, and at least one invocation below it."""
    for command in COMMANDS:
        section = re.split(r"\n##+ ", TEXT.split(f"\n### {command}\n", 1)[1], maxsplit=1)[0]
        assert re.search(rf"holdfast {command}\b", section), command


def test_the_examples_of_the_help_are_on_the_page() -> None:
    """So they are run, too."""
    assert set(EXAMPLES) == set(COMMANDS)
    missing = [
        line for lines in EXAMPLES.values() for line in map(str.strip, lines) if line not in INVOCATIONS
    ]
    assert missing == []


def test_the_exit_codes_on_the_page_are_those_of_the_code() -> None:
    """And those of `--help`."""
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", TEXT, re.MULTILINE))
    assert rows == {str(int(code)): meaning for code, meaning in MEANINGS.items()}


def test_the_forms_on_the_page_are_those_of_the_code() -> None:
    """Each with the same words."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (the transcript.*|every .*) \|$", TEXT, re.MULTILINE))
    assert rows == {name: form.about for name, form in FORMS.items()}


def list_servers(home: Path) -> None:
    """Files of clients, of a project and of the user on each platform."""
    servers = '{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}'
    (home / ".mcp.json").write_text(servers)
    for folder in (".config", "Library/Application Support"):
        path = home / folder / "Claude" / "claude_desktop_config.json"
        path.parent.mkdir(parents=True)
        path.write_text(servers)


@pytest.mark.parametrize("line", INVOCATIONS)
def test_a_documented_invocation_works(line: str, shop: Path) -> None:
    """As it stands, in a shell; with an answer where it asks, and a Ctrl-C where it follows."""
    if line == "holdfast clean done":
        with Terminal(shop, ["clean", "done"]) as terminal:
            terminal.read_until("[y/N]")
            terminal.type("y\n")
            assert terminal.finish() == 0
    elif line.endswith(" -f"):
        process = start(shop, *line.split()[1:])
        assert process.stdout is not None
        assert "session begins" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert end(process).code == 130
    elif line.startswith("holdfast ui"):
        # Another port than a person would choose: another test may have that one.
        words = re.sub(r" --port \d+", "", line).split()[1:]
        process = start(shop, *words, "--port", "0", BROWSER="true")
        assert process.stdout is not None
        assert re.match(r"http://127\.0\.0\.1:\d+/\?token=\w+\n", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert end(process).code == 0
    else:
        if line.startswith("holdfast mcp proxy") and "--url" in line:
            # Its client has gone before anything is sent.
            line = f"export CRM_TOKEN=t; {line} --store sqlite:mcp.db"
        elif line.startswith("holdfast mcp proxy"):
            # A server that ends at once, in the place of one that would be fetched.
            line = f"{line.partition(' -- ')[0]} --store sqlite:mcp.db -- true"
        elif line.startswith("holdfast mcp check"):
            server = ROOT / "tests" / "mcp_proxy" / "notes_server.py"
            line = f"{line.partition(' -- ')[0]} -- {sys.executable} {server} {shop}"
        elif line.startswith("holdfast mcp wrap"):
            list_servers(shop)
            # On a terminal it would ask.
            line = f"HOME={shop} XDG_CONFIG_HOME= {line} --yes".replace(" --yes --yes", " --yes")
        shell = f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}; {line}'
        done = subprocess.run(
            ["sh", "-c", shell],
            cwd=shop,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == (5 if line in WAITS else 0), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does, with examples, on a terminal of any width."""
    monkeypatch.setenv("COLUMNS", "60")
    assert main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Examples:" in printed
    assert [line for line in printed.splitlines() if len(line) > 60] == []


@pytest.mark.parametrize(("alias", "command"), OTHER_NAMES.items())
def test_another_name_of_a_command_is_that_command(
    alias: str, command: str, shop: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """The same help, the same options, the same output; its place on the page names it."""
    by_alias, by_name = call_here(shop, f"{alias} --help"), call_here(shop, f"{command} --help")
    assert by_alias.out.replace(f"holdfast {alias} [", f"holdfast {command} [") == by_name.out
    assert f"holdfast {alias}" in by_name.out
    section = re.split(r"\n##+ ", TEXT.split(f"\n### {command}\n", 1)[1], maxsplit=1)[0]
    assert f"`holdfast {alias}`" in section
    if command != "clean":
        options = JSON[command].removeprefix(command)
        assert call_here(shop, f"{alias}{options} --json") == call_here(shop, f"{command}{options} --json")


def test_help_lists_other_names_beside_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command has one line, however many names it has."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["--help"]) == 0
    listed = [line.strip("│ ").split("  ")[0] for line in capsys.readouterr().out.splitlines() if "│" in line]
    for name in COMMANDS:
        also = f" ({', '.join(ALIASES[name])})" if name in ALIASES else ""
        assert listed.count(f"{name}{also}") == 1, name
    assert not set(listed) & set(OTHER_NAMES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_other_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the options of the command."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for alias in OTHER_NAMES:
        assert re.search(rf"\b{alias}\b", script), alias


JSON = {
    "sessions": "sessions",
    "show": "show killed",
    "tail": "tail done -n 1",
    "diff": "diff done 1",
    "replay": "replay done clerk.py",
    "export": "export done",
    "stats": "stats",
    "blobs": "blobs",
    "run": "run clerk.py Hello",
    "resume": "resume clerk.py --all",
    "workers": "workers",
    "submit": "submit done Hello",
    "cancel": "cancel done",
    "pending": "pending",
    "approve": "approve asking c-refund",
    "refuse": "refuse asking c-refund",
    "resolve": "resolve doubtful c-charge gave-up",
    "resolve-operation": EXAMPLES["resolve-operation"][0].removeprefix("holdfast "),
    "fork": "fork done",
    "rewind": "rewind done --steps 1",
    "clean": "clean done --yes",
    "copy": "copy sqlite:holdfast.db dir:copy",
    "import": "import done.jsonl --store dir:archive",
}


@pytest.mark.parametrize("command", JSON)
def test_the_json_of_a_command_has_the_documented_keys(
    command: str, shop: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """One object on stdout, and no more."""
    run = call if command in ("run", "resume", "replay") else call_here
    if command == "import":
        assert run(shop, "export done --form journal --output done.jsonl").code == 0
    done = run(shop, f"{JSON[command]} --json")
    assert done.code == (5 if command == "resume" else 0), done.err
    assert set(done.json) == documented_keys()[command]


def test_every_command_that_has_json_is_in_the_table() -> None:
    """`demo` is a show, `completion` gives a script, `worker` prints a line for whatever happens, `ui` serves
    until it is stopped, and `mcp` has commands of its own."""
    assert (
        set(JSON) == set(documented_keys()) == set(COMMANDS) - {"demo", "completion", "worker", "ui", "mcp"}
    )


def test_a_session_has_the_documented_keys(stocked: Path) -> None:
    """In lists, and by itself."""
    prose = TEXT.split("A session in `sessions` and `show` has ", 1)[1].split(". Its `standing`", 1)[0]
    documented = set(re.findall(r"`(\w+)`", prose))
    assert set(call(stocked, "sessions --json").json["sessions"][0]) == documented
    assert set(call(stocked, "show done --json").json["session"]) == documented

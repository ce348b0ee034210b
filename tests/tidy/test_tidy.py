"""What the repository promises about its own shape."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"

# A module imports from its own line and the lines above it. A new module takes its place here.
LAYERS = (
    ("errors", "limits", "system", "ids", "redact", "reprs", "suggestions", "telemetry"),
    ("messages", "formatting", "core", "content", "formats", "drawing"),
    ("drivers", "blobs"),
    ("engine",),
    ("session", "store"),
    ("tools",),
    ("agents",),
    ("workers",),
    ("replay",),
    ("records",),
    ("adapters", "blocking", "crash_test", "http", "mcp_proxy", "recipes", "testing"),
    ("cli", "viewer", "demo", "__main__"),
)
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}

# The package itself offers names of every layer, so importing it is for the last line only.
LAYER_OF_PACKAGE = len(LAYERS) - 1

# `drivers/memory.py` and everything in `drivers/sqlite/` belong to one driver.
DRIVERS = ("memory", "directory", "sqlite", "postgres")

NAMELESS = {"utils", "helpers", "common", "manager", "misc"}
NOT_OURS = {".git", ".venv", "build", "dist", "__pycache__", ".hypothesis"}


@cache
def repository_files() -> tuple[Path, ...]:
    """The files git tracks or would offer to add; without git, all but what tools leave behind."""
    try:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        found = [ROOT / name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = list(walk_files())
    return tuple(sorted(path for path in found if path.is_file()))


def walk_files() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if name not in NOT_OURS and not name.endswith("_cache")]
        yield from (Path(folder, name) for name in names)


def expect_none(problems: Iterable[str]) -> None:
    """Fail with all of the problems, one a line."""
    if found := list(problems):
        pytest.fail("\n".join(found), pytrace=False)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def source_files() -> list[Path]:
    return [path for path in repository_files() if path.suffix == ".py" and path.is_relative_to(PACKAGE)]


def source_lines(pattern: str) -> Iterator[tuple[Path, str]]:
    """The lines in src that match, each with its file and ready to be shown."""
    for path in source_files():
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if re.search(pattern, line):
                yield path, f"{shown(path)}:{number}: {line.strip()}"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in source_files()}


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below this one but those in `if TYPE_CHECKING:`, which never run."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for otherwise in child.orelse:
                yield otherwise
                yield from runtime_nodes(otherwise)
        else:
            yield from runtime_nodes(child)


def imported_modules(name: str) -> set[str]:
    """The modules of holdfast that the module imports when it runs, at its top or in a function."""
    path = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in runtime_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                source = ".".join([*above, *([source] if source else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(inner if inner in modules() else source)
    return {module for module in found if module.split(".")[0] == "holdfast"}


@cache
def imports() -> tuple[tuple[str, str], ...]:
    """Every (importer, imported) pair inside src, without what the package itself re-exports."""
    return tuple(
        (importer, imported)
        for importer in modules()
        if importer != "holdfast"
        for imported in sorted(imported_modules(importer))
    )


def layer(module: str) -> int:
    if module == "holdfast":
        return LAYER_OF_PACKAGE
    return LAYER_OF.get(module.split(".")[1], LAYER_OF_PACKAGE)


def driver(module: str) -> str | None:
    parts = module.split(".")
    if parts[1:2] != ["drivers"] or len(parts) < 3:
        return None
    return next((name for name in DRIVERS if parts[2].startswith(name)), None)


def test_locks_name_no_host() -> None:
    """A lock holds names, versions and hashes; where packages come from is for each machine to say."""
    locks = [*(ROOT / "requirements").glob("*.lock"), *(ROOT / "requirements").glob("*/package*.json")]
    assert locks
    expect_none(shown(lock) for lock in locks if "://" in lock.read_text())


def test_no_file_names_a_path_of_some_machine() -> None:
    """Nothing in the repository depends on where somebody keeps it, or tells."""
    needles = [f"/{folder}/".encode() for folder in ("home", "root", "work")]
    expect_none(
        f"{shown(path)}: {needle.decode()}"
        for path in repository_files()
        for needle in needles
        if needle in path.read_bytes()
    )


def test_every_module_has_a_layer() -> None:
    """A module that is not in the table has not been thought about; put it into its line."""
    expect_none(name for name in modules() if name != "holdfast" and name.split(".")[1] not in LAYER_OF)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_layers_on_a_page_are_those_of_the_code(page: str) -> None:
    """Each page that draws the layers names every module, and the folders as folders, in their lines."""
    (drawn,) = re.findall(
        r"^```text\n(errors  .*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    expected = [
        [name + "/" * (PACKAGE / name).is_dir() for name in names if name != "__main__"] for names in LAYERS
    ]
    # What a line says about its modules stands apart from them, behind at least three spaces.
    assert [re.split(r" {3,}", line)[0].split() for line in drawn.splitlines()] == expected


def test_a_module_imports_only_from_its_own_layer_and_the_layers_above() -> None:
    """Read from the top, the table of layers explains each module by those already explained."""
    expect_none(
        f"{importer} imports {imported}"
        for importer, imported in imports()
        if layer(imported) > layer(importer)
    )


def test_a_driver_imports_no_other_driver() -> None:
    """Each driver can be read, replaced or deleted without a look at the others."""
    expect_none(
        f"{importer} imports {imported}"
        for importer, imported in imports()
        if driver(importer) and driver(imported) and driver(importer) != driver(imported)
    )


def test_a_driver_imports_nothing_built_upon_the_store() -> None:
    """Drivers know bytes, not sessions, tools or agents."""
    expect_none(
        f"{importer} imports {imported}"
        for importer, imported in imports()
        if driver(importer) and layer(imported) > LAYER_OF["drivers"]
    )


def test_only_the_url_of_a_store_chooses_a_driver() -> None:
    """Everything above speaks to the Store; which driver is behind it is chosen by its address alone."""
    expect_none(
        f"{importer} imports {imported}"
        for importer, imported in imports()
        if driver(imported) and importer.split(".")[1] not in ("drivers", "blobs")
    )


def test_only_the_clock_module_reads_the_clock() -> None:
    """Time is passed in, so a test can stop it."""
    reading = r"datetime\.now\(|\butcnow\(|date\.today\(|\btime\.time(_ns)?\("
    expect_none(line for path, line in source_lines(reading) if path != PACKAGE / "system" / "clock.py")


def test_only_one_module_knows_which_event_loop_runs() -> None:
    """All other modules run in asyncio and in trio without asking."""
    importing = r"^\s*(import|from) (asyncio|trio|sniffio)\b"
    expect_none(line for path, line in source_lines(importing) if path != PACKAGE / "system" / "aio.py")


# What only the modules of `system` import: `uuid.UUID`, a type, is free.
SYSTEM_MODULES = r"fcntl|random|secrets|shutil|signal|subprocess|tempfile|threading|uuid"
SYSTEM_CALLS = {
    "time": r"sleep|monotonic(_ns)?",
    "os.path": r"exists|isdir|isfile|islink|lexists|realpath|samefile|samestat",
    "os": (
        r"close|dup|fchmod|fdatasync|fsync|fstat|ftruncate|link|listdir|lseek|lstat|makedirs|mkdir|open|pread|"
        r"pwrite|read|readlink|remove|rename|replace|rmdir|scandir|stat|symlink|truncate|unlink|utime|walk|write|"
        r"execve?|fork|getpid|getppid|getuid|kill|register_at_fork|uname|urandom"
    ),
}
# Methods of `pathlib.Path`. Not `read_text` and `iterdir`: those read the package's own resources.
PATH_METHODS = (
    r"exists|is_dir|is_file|is_symlink|lstat|mkdir|read_bytes|rmdir|samefile|symlink_to|touch|unlink|"
    r"write_bytes|write_text"
)
NOT_THROUGH_SYSTEM = (
    "system",
    "testing",  # Suites act as the applications that use holdfast.
    "crash_test",  # Starts, watches and kills the processes of users.
    "cli",  # Prints, and reads what a person names; stores are not its files.
    "demo",  # Starts and kills processes before the reader's eyes.
    "drivers/sqlite/file_guard.py",  # Locks ranges of the files that SQLite has open, under their numbers.
)


def system_uses(path: Path) -> Iterator[str]:
    """What a module does with the operating system past `holdfast.system`."""
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[str] = []
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names if re.fullmatch(SYSTEM_MODULES, alias.name)]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                calls = ".*" if re.fullmatch(SYSTEM_MODULES, module) else SYSTEM_CALLS.get(module, "")
                found = [alias.name for alias in names if re.fullmatch(calls, alias.name)]
                found = [name for name in found if name != "UUID"]
            case ast.Call(func=ast.Name(id="open")):
                found = ["open"]
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if ast.unparse(value) != "files":
                owner = ast.unparse(value)
                found = [name] if re.fullmatch(SYSTEM_CALLS.get(owner, PATH_METHODS), name) else []
        yield from (f"{shown(path)}:{getattr(node, 'lineno', 0)}: {name}" for name in found)


def test_time_randomness_threads_files_and_processes_pass_one_module_each() -> None:
    """A simulator can take their place, and platforms differ there only."""
    exempt = tuple(PACKAGE / name for name in NOT_THROUGH_SYSTEM)
    expect_none(
        use
        for path in source_files()
        if not any(path.is_relative_to(free) for free in exempt)
        for use in system_uses(path)
    )


def test_types_are_inspected_at_import() -> None:
    """Two threads that make msgspec inspect a type for the first time at once can crash the interpreter. So
    decoders are made once, at the top of a module; for types of users, `values.py` has a lock. The same goes
    for classes that are named as decoders, and make one when they are made."""
    inspecting = r"\bdecode\(.*\btype=|\bmsgspec\.convert\("
    expect_none(line for path, line in source_lines(inspecting) if path != PACKAGE / "core" / "values.py")
    expect_none(
        f"{shown(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in source_files()
        for function in functions_outside_decoders(ast.parse(path.read_text()))
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Decoder")
    )


def functions_outside_decoders(tree: ast.AST) -> Iterator[ast.AST]:
    """All functions, but not what makes an object of a class that is named as a decoder."""
    making = {
        function
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Decoder")
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node not in making:
            yield node


def test_no_file_or_folder_is_named_for_nothing() -> None:
    """A name says what is inside; a drawer for odds and ends has no such name."""
    expect_none(
        shown(path)
        for path in repository_files()
        if path.suffix == ".py"
        for part in path.relative_to(ROOT).with_suffix("").parts
        if NAMELESS.intersection(part.lower().split("_"))
    )


def test_a_class_name_has_one_meaning() -> None:
    """The proxies of `blocking` stand for the classes whose names they have."""
    places: dict[str, list[str]] = {}
    for path in source_files():
        if not path.is_relative_to(PACKAGE / "blocking"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(shown(path))
    expect_none(f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1)


# Documented for their users, in spite of their names: of `os`, and of named tuples.
PUBLIC_ALL_THE_SAME = {"_exit", "_fields", "_replace"}


def private_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines and names of private attributes of objects that the file does not define itself."""
    own = set(PUBLIC_ALL_THE_SAME)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                own.add(name)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name, end_lineno=int(line)) if (
                re.match("_[^_]", name) and name not in own
            ):
                yield line, name


def test_tests_say_why_they_reach_into_private_attributes() -> None:
    """Tests use the public surface or the driver contract; `tests/internals.py` is the way below it.

    Where a test file first uses another private name, a comment stands on the line or above it. Lines that
    follow each other share one.
    """
    problems: list[str] = []
    for path in repository_files():
        if path.suffix != ".py" or not path.is_relative_to(ROOT / "tests") or path.name == "internals.py":
            continue
        text = path.read_text()
        comments = {
            token.start[0]
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and not re.match("# (type|noqa):", token.string)
        }
        explained: set[str] = set()
        block: set[int] = set()
        for line, name in sorted(set(private_uses(ast.parse(text)))):
            if line in comments or line - 1 in comments | block or name in explained:
                explained.add(name)
                block.add(line)
            else:
                problems.append(f"{shown(path)}:{line}: {name}")
    expect_none(problems)


def test_the_source_leaves_nothing_for_later() -> None:
    """Unfinished work is not kept in comments."""
    expect_none(line for _, line in source_lines(r"\b(TODO|FIXME|XXX)\b"))


def public_modules() -> dict[str, ModuleType]:
    """The modules whose names users import, `holdfast` itself first."""
    names = [
        "agents",
        "blobs",
        "blocking",
        "crash_test",
        "drivers",
        "errors",
        "http",
        "messages",
        "recipes",
        "records",
        "replay",
        "testing",
        "tools",
        "viewer",
        "workers",
    ]
    adapters = ["adapters.langgraph", "adapters.openai_agents", "adapters.pydantic_ai"]
    return {
        name: import_module(name) for name in ["holdfast", *(f"holdfast.{one}" for one in names + adapters)]
    }


@pytest.mark.parametrize("module", public_modules().values(), ids=public_modules())
def test_the_public_names_are_sorted(module: ModuleType) -> None:
    """`__all__` is in plain sorted order, each name once, and every name in it exists."""
    assert list(module.__all__) == sorted(set(module.__all__))
    expect_none(name for name in module.__all__ if not hasattr(module, name))


def test_a_page_lists_every_public_name() -> None:
    """docs/api.md is what tools/api_page.py makes of the docstrings."""
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "api_page.py"], capture_output=True, text=True, check=True
    )
    assert (ROOT / "docs" / "api.md").read_text() == made.stdout, (
        "run: python tools/api_page.py > docs/api.md"
    )


def test_the_package_loads_its_names_when_they_are_asked_for() -> None:
    """Importing the package alone loads no library; a misspelt name is an AttributeError."""
    script = (
        "import sys, holdfast\n"
        "assert 'msgspec' not in sys.modules\n"
        "assert not hasattr(holdfast, '__wrapped__') and 'msgspec' not in sys.modules\n"
        "assert not hasattr(holdfast, 'Agnet')\n"
        "assert set(holdfast.__all__) <= set(dir(holdfast))\n"
        "assert holdfast.records.Plan is sys.modules['holdfast.core.plan'].Plan\n"
        "from holdfast import *\n"
        "assert Agent is holdfast.Agent is sys.modules['holdfast.agents.agent'].Agent\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_the_types_ship_with_the_package() -> None:
    """Type checkers of users see the annotations."""
    assert (PACKAGE / "py.typed").is_file()

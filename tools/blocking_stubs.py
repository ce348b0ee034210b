"""Print src/holdfast/blocking/__init__.pyi: the types of the proxies in holdfast.blocking.

.venv/bin/python tools/blocking_stubs.py > src/holdfast/blocking/__init__.pyi

Read off the source of the async classes: a coroutine function becomes a plain one, an async iterator an
iterator, an async context manager a context manager.
"""

from __future__ import annotations

import ast
import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast import blocking
from holdfast.blocking.proxy import HIDDEN

SOURCE = Path(__file__).resolve().parents[1] / "src" / "holdfast"
CLASSES = {
    "Store": "store.store",
    "Session": "session.session",
    "Run": "session.run",
    "Request": "session.run",
    "Hold": "session.resource_lease",
    "OpenBlob": "blobs.blob",
    "Registry": "tools.registry",
    "Agent": "agents.agent",
}
MADE_BY_CALLERS = {"Registry", "Agent"}
ENTERED = {"Session", "Run", "Request"}
"""Async context managers themselves: what returns one is used in a `with` here."""
RENAMED = {"Undoer": "AnyRegistry", "Settler": "AnyRegistry"}
WITH_LOOP = {"Registry", "Store"}
"""These give the async object that they stand for."""
HEADER = '''"""The types of `holdfast.blocking`. Made by tools/blocking_stubs.py from the async classes."""

'''


class Names(ast.NodeTransformer):
    """Rewrite the names of an annotation, and note where each comes from."""

    def __init__(self, module: str, used: dict[str, str]) -> None:
        self._home, self._used = _origins(module), used

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """A proxy's own name stays; everything else is imported from where the async class has it."""
        name = RENAMED.get(node.id, node.id)
        if name in self._home and name not in CLASSES:
            self._used[name] = self._home[name]
        return ast.Name(name)


def _origins(module: str) -> dict[str, str]:
    """The module of each name that a module imports or defines."""
    package = module.split(".")[:-1]
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            up = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*up, *([node.module] if node.module else [])])
            found |= {name.asname or name.name: (".." if node.level else "") + origin for name in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(node.name, f"..{module}")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: f"..{module}" for one in targets if isinstance(one, ast.Name)}
    return found


def _find(module: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    raise LookupError(f"{module} has no {name}")


def _returns(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr:
    """What the function of the proxy returns."""
    assert node.returns is not None
    text = ast.unparse(node.returns)
    inside = text.partition("[")[2].removesuffix("]")
    decorators = [ast.unparse(one) for one in node.decorator_list]
    if "asynccontextmanager" in decorators or text.startswith("AbstractAsyncContextManager["):
        text = f"AbstractContextManager[{inside}]"
    elif isinstance(node, ast.FunctionDef) and text in ENTERED:
        text = f"AbstractContextManager[{text}]"
    elif text.startswith("AsyncIterator["):
        text = f"Iterator[{inside}]"
    elif text.startswith("AsyncGenerator["):
        text = f"Generator[{inside.removesuffix(', None')}]"
    return ast.parse(text, mode="eval").body


def _default(value: ast.expr) -> ast.expr:
    plain = isinstance(value, ast.Constant) or (isinstance(value, ast.Tuple) and not value.elts)
    return value if plain else ast.Constant(...)


def _stub(node: ast.FunctionDef | ast.AsyncFunctionDef, names: Names) -> ast.FunctionDef:
    """The function without its body, as the proxy has it."""
    args = copy.deepcopy(node.args)
    args.defaults = [_default(one) for one in args.defaults]
    args.kw_defaults = [None if one is None else _default(one) for one in args.kw_defaults]
    kept = [one for one in node.decorator_list if ast.unparse(one) in ("property", "overload")]
    overloaded = any(ast.unparse(one) == "overload" for one in kept)
    for one in kept:
        names.visit(one)
    doc = ast.get_docstring(node, clean=False)
    for theirs, ours in (("async with", "with"), ("async for", "for"), ("await ", "")):
        doc = None if doc is None or overloaded else doc.replace(theirs, ours)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(... if doc is None else doc))]
    name = "__iter__" if node.name == "__aiter__" else node.name
    made = ast.parse(f"def {name}(): ...").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.args, made.body, made.decorator_list = names.visit(args), body, kept
    made.returns = names.visit(_returns(node))
    return ast.fix_missing_locations(made)


def _attributes(init: ast.FunctionDef, names: Names) -> Iterator[ast.stmt]:
    """What `__init__` sets: as the parameter it is given, or as what it calls."""
    given = {one.arg: one.annotation for one in [*init.args.args, *init.args.kwonlyargs]}
    found: list[tuple[ast.expr, ast.expr | None]] = []
    for node in ast.walk(init):
        if isinstance(node, ast.AnnAssign):
            found.append((node.target, node.annotation))
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for one, from_ in pairs:
                named = given.get(from_.id) if isinstance(from_, ast.Name) else None
                found.append((one, from_.func if isinstance(from_, ast.Call) else named))
    for one, kind in found:
        if not isinstance(one, ast.Attribute) or one.attr.startswith("_") or one.attr in HIDDEN:
            continue
        if kind is None:
            raise TypeError(f"annotate self.{one.attr} in __init__: its type cannot be told from the source")
        text = ast.unparse(names.visit(copy.deepcopy(kind)))
        yield from ast.parse(f"@property\ndef {one.attr}(self) -> {text}: ...").body


def _class(name: str, used: dict[str, str]) -> ast.ClassDef:
    module = CLASSES[name]
    found, names = _find(module, name), Names(module, used)
    assert isinstance(found, ast.ClassDef)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(getattr(blocking, name).__doc__))]
    if name not in MADE_BY_CALLERS:
        body += ast.parse(f"_loop: Loop\n_target: Async{name}").body
    functions = [one for one in found.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    seen: set[str] = set()
    for one in functions:
        if one.name == "__init__":
            if name in MADE_BY_CALLERS:
                body.append(_stub(one, names))
            assert isinstance(one, ast.FunctionDef)
            body += _attributes(one, names)
        elif one.name == "__aiter__" or not (one.name.startswith("_") or one.name in HIDDEN):
            overloads = any(ast.unparse(mark) == "overload" for mark in one.decorator_list)
            if overloads:
                seen.add(one.name)
            if overloads or one.name not in seen:
                body.append(_stub(one, names))
    if name in WITH_LOOP:
        body += ast.parse(f"@property\ndef with_loop(self) -> Async{name}: ...").body
    made = ast.parse(f"class {name}: ...").body[0]
    assert isinstance(made, ast.ClassDef)
    made.bases, made.body = [names.visit(base) for base in found.bases], body
    return made


def make() -> str:
    """The text of the stub file, as ruff formats it."""
    used: dict[str, str] = {"Loop": ".loop"}
    classes = [_class(name, used) for name in CLASSES]
    opening = _find("store.store", "open_store")
    assert isinstance(opening, ast.FunctionDef)
    opening.returns = ast.parse("AbstractContextManager[Store]", mode="eval").body
    function = _stub(opening, Names("store.store", used))
    for name in ("AbstractContextManager", "Generator", "Iterator"):
        used[name] = "contextlib" if name.startswith("Abstract") else "collections.abc"
    for name in ("AsyncIterator", "AsyncGenerator", "AbstractAsyncContextManager", "asynccontextmanager"):
        used.pop(name, None)
    imports = [f"from {origin} import {name}" for name, origin in used.items()]
    imports += [
        f"from ..{module} import {name} as Async{name}" for name, module in CLASSES.items() if name != "Agent"
    ]
    tail = "AnyRegistry: TypeAlias = Registry | AsyncRegistry"
    names = "\n".join(f'    "{name}",' for name in blocking.__all__)
    text = "\n\n".join(
        [
            HEADER + "\n".join([*sorted(imports), "from typing import TypeAlias"]),
            f"__all__ = [\n{names}\n]",
            *(ast.unparse(ast.fix_missing_locations(one)) for one in [function, *classes]),
            tail,
        ]
    )
    for options in (["check", "--fix", "--select", "I,F401"], ["format"]):
        command = [sys.executable, "-m", "ruff", *options, "-q", "--stdin-filename", "blocking.pyi", "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    print(make(), end="")

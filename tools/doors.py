"""Doors of packages: who enters one past its door, and the rewriting of such imports.

    python -m tools.doors          print the names of each door, and the imports that pass one
    python -m tools.doors --fix    write each door's list of names, and let imports of names that a door has enter by it

A door is the ``__init__`` of a package of ``cdc_core`` that ends with a call of ``lazily`` (``cdc_core/door.py``). What
it gives out are the imports under its ``if TYPE_CHECKING``.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("cdc_core", "pipelines", "wal2lake")


@dataclass(frozen=True, slots=True)
class Passing:
    """An import past the door of ``package``: ``name`` of ``module``, in a file."""

    file: str
    package: str
    module: str
    name: str


@cache
def doors(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return, by package, the names that its door gives out, each with its module."""
    return {f"cdc_core.{path.parent.name}": given_out(path) for path in _pages(root)}


def _pages(root: Path) -> list[Path]:
    pages = sorted((root / "cdc_core").glob("*/__init__.py"))
    return [path for path in pages if "\nlazily(" in path.read_text(encoding="utf-8")]


def given_out(page: Path) -> dict[str, str]:
    """The names that a door imports for type checkers, each with the module that defines it."""
    tree, names = ast.parse(page.read_text(encoding="utf-8")), dict[str, str]()
    for node in tree.body:
        if isinstance(node, ast.If):
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    names |= {alias.name: _defined_in(page, line.module, alias.name) for alias in line.names}
    return names


def _defined_in(page: Path, module: str, name: str) -> str:
    """The module of a name; the name's own if it is a module."""
    folder = page.parents[2] / module.replace(".", "/")
    return f"{module}.{name}" if (folder / f"{name}.py").exists() else module


def loaded(page: Path) -> dict[str, str]:
    """The names that a door loads when it runs, each with the module that defines it."""
    for node in ast.parse(page.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and len(node.value.args) == 2:
            names = ast.literal_eval(node.value.args[1])
            return {name: f"cdc_core.{page.parent.name}.{module}" for name, module in names.items()}
    return {}


def pages(root: Path = ROOT) -> list[Path]:
    """The files that are doors."""
    return _pages(root)


def files(root: Path = ROOT) -> Iterator[Path]:
    """The files whose imports are looked at."""
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("**/*.py")):
            if not (folder == "wal2lake" and "pipelines" in path.parts):
                yield path


def passing(root: Path = ROOT) -> list[Passing]:
    """Return the imports from other packages that do not enter by a door."""
    found = []
    for path in files(root):
        inside = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                package = ".".join(node.module.split(".")[:2])
                own = package.replace(".", "/") + "/"
                if package in doors(root) and node.module != package and not inside.startswith(own):
                    found += [Passing(inside, package, node.module, alias.name) for alias in node.names]
    return found


def write_names(page: Path) -> None:
    """Write the list of a door's names that are loaded when they are used."""
    package = f"cdc_core.{page.parent.name}"
    text = page.read_text(encoding="utf-8")
    names = {name: module.removeprefix(f"{package}.") for name, module in sorted(given_out(page).items())}
    listed = "".join(f'        "{name}": "{module}",\n' for name, module in names.items())
    page.write_text(f"{text[: text.index(chr(10) + 'lazily(')]}\nlazily(\n    __name__,\n    {{\n{listed}    }},\n)\n")


def enter_by_doors(root: Path = ROOT) -> list[str]:
    """Rewrite imports of names that a door gives out; returns the files that were changed."""
    wrong: dict[str, set[tuple[str, str]]] = {}
    for each in passing(root):
        module = doors(root)[each.package].get(each.name, "")
        if module in (each.module, f"{each.module}.{each.name}") or _gives_on(root, each, module):
            wrong.setdefault(each.file, set()).add((each.module, each.name))
    for name, those in wrong.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for node in sorted(_imports(text), key=lambda one: -one.lineno):
            entering = [a for a in node.names if (node.module, a.name) in those]
            if not entering or node.module is None:
                continue
            others = [a for a in node.names if a not in entering]
            indent = " " * node.col_offset
            kept = "" if node.end_col_offset is None else lines[node.end_lineno - 1][node.end_col_offset :]
            made = [f"{indent}from {'.'.join(node.module.split('.')[:2])} import {_listed(entering)}"]
            made += [f"{indent}from {node.module} import {_listed(others)}"] if others else []
            lines[node.lineno - 1 : node.end_lineno] = ["\n".join(made) + (kept or "\n")]
        path.write_text("".join(lines), encoding="utf-8")
    return sorted(wrong)


def _gives_on(root: Path, each: Passing, module: str) -> bool:
    """Whether a package inside hands the same name through, or the module no longer exists."""
    place = root / each.module.replace(".", "/")
    if module and not place.is_dir() and not place.with_suffix(".py").exists():
        return True  # it was moved inside the package
    page = place / "__init__.py"
    return bool(module) and page.exists() and f"from {module} import" in page.read_text(encoding="utf-8")


def _imports(text: str) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]


def _listed(names: list[ast.alias]) -> str:
    return ", ".join(a.name if a.asname is None else f"{a.name} as {a.asname}" for a in names)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.doors", description=__doc__.split("\n")[0])
    parser.add_argument("--fix", action="store_true", help="write the doors' lists, and rewrite imports")
    if parser.parse_args(arguments).fix:
        for page in pages():
            write_names(page)
        changed = [*enter_by_doors(), *(page.relative_to(ROOT).as_posix() for page in pages())]
        ruff = [sys.executable, "-m", "ruff"]
        subprocess.run([*ruff, "check", "--quiet", "--select", "I", "--fix", *changed], cwd=ROOT, check=True)
        subprocess.run([*ruff, "format", "--quiet", *changed], cwd=ROOT, check=True)
    for package, names in doors().items():
        print(f"{package:24} gives out {len(names):3} names")
    for each in passing():
        print(f"{each.file}: {each.module}.{each.name} is imported past the door of {each.package}")


if __name__ == "__main__":
    main()

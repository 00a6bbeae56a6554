"""Print the imports of cdc_core and pipelines: rooms, arrows between them, levels, circles, largest files and classes.

    python -m tools.import_picture                      this checkout
    python -m tools.import_picture --root PATH          another one, of any commit (``git worktree add PATH COMMIT``)
    python -m tools.import_picture --compare PATH       the figures of PATH next to those of this checkout
    python -m tools.import_picture --arrows             with every arrow between rooms

A room is a folder of Python files; the files beside the folders of a package are one room too. Two of them may import
each other if one is inside the other (``tests/house/test_imports.py`` states the order of such files and folders). A
module's level is the length of the longest chain of imports below it. Imports inside functions count.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.doors import doors

ROOT = Path(__file__).parents[1]
PACKAGES = ("cdc_core", "pipelines", "wal2lake")
MANY_LINES, MANY_FILES, MANY_METHODS, MANY_ARGUMENTS, MANY_FIELDS = 250, 15, 15, 8, 15
_LIMITS = (MANY_LINES, MANY_METHODS, MANY_ARGUMENTS, MANY_FIELDS)
Edges = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class ClassSize:
    """A class. ``arguments``: of ``__init__``, without self; ``fields``: of a dataclass, which has no ``__init__``."""

    name: str
    lines: int
    public: int
    arguments: int
    fields: int

    @property
    def is_large(self) -> bool:
        """Whether it should be looked at again: is it two things?"""
        sizes = (self.lines, self.public, self.arguments, self.fields)
        return any(n > limit for n, limit in zip(sizes, _LIMITS, strict=True))


@dataclass(frozen=True)
class Picture:
    """The modules of a checkout: lines, room and imported modules of each, and all classes."""

    lines: Mapping[str, int]
    rooms: Mapping[str, str]
    edges: Edges
    classes: tuple[ClassSize, ...]

    @cached_property
    def arrows(self) -> Counter[tuple[str, str]]:
        """Imports from one room to another, by the pair of rooms."""
        pairs = ((self.rooms[a], self.rooms[b]) for a, imported in self.edges.items() for b in imported)
        return Counter((a, b) for a, b in pairs if a != b)

    @cached_property
    def upward(self) -> Counter[tuple[str, str]]:
        """Of two rooms that import each other, neither inside the other, the direction with fewer imports."""
        apart = {
            (a, b): n
            for (a, b), n in self.arrows.items()
            if not f"{a}/".startswith(f"{b}/") and not f"{b}/".startswith(f"{a}/")
        }
        return Counter({(a, b): n for (a, b), n in apart.items() if (n, a) < (apart.get((b, a), 0), b)})

    @cached_property
    def circles(self) -> list[list[str]]:
        """Groups of modules each of which imports, by way of others, itself."""
        return [sorted(group) for group in _components(self.edges) if len(group) > 1]

    @cached_property
    def levels(self) -> dict[str, int]:
        """The level of each module, 1 for those that import none of the others; a circle is one level."""
        levels: dict[str, int] = {}
        for group in _components(self.edges):
            below = {levels[name] for member in group for name in self.edges[member] if name not in group}
            levels.update(dict.fromkeys(group, max(below, default=0) + 1))
        return levels


def picture(root: Path) -> Picture:
    """Read the Python files of a checkout."""
    trees = {_module(path, root): path for package in PACKAGES for path in sorted((root / package).glob("**/*.py"))}
    texts = {name: path.read_text(encoding="utf-8") for name, path in trees.items()}
    parsed = {name: ast.parse(text) for name, text in texts.items()}
    # A name that a door gives out is imported from the module that defines it.
    given = {f"{package}.{name}": at for package, names in doors(root).items() for name, at in names.items()}
    known = {*trees, *given}
    edges = {name: frozenset(given.get(n, n) for n in _imports(tree, known)) - {name} for name, tree in parsed.items()}
    rooms = {name: path.parent.relative_to(root).as_posix() for name, path in trees.items()}
    classes = [size for name, tree in parsed.items() for size in _classes(name, tree)]
    return Picture({name: len(text.splitlines()) for name, text in texts.items()}, rooms, edges, tuple(classes))


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(("wal2lake", *parts) if parts[0] == "pipelines" else parts).removesuffix(".__init__")


def _imports(tree: ast.Module, modules: Iterable[str]) -> Iterator[str]:
    """Modules of the checkout that a module names; ``from package import module`` names the module only."""
    known = set(modules)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in known or node.module in known:
                    yield name if name in known else node.module


def _classes(module: str, tree: ast.Module) -> Iterator[ClassSize]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
            fields = sum(isinstance(item, ast.AnnAssign) for item in node.body) if node.decorator_list else 0
            made = methods.get("__init__")
            arguments = len(made.args.args) + len(made.args.kwonlyargs) - 1 if made else 0
            public = sum(not name.startswith("_") for name in methods)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield ClassSize(f"{module}.{node.name}", lines, public, arguments, fields)


def _components(edges: Edges) -> list[frozenset[str]]:
    """Strongly connected components (Tarjan), those that others import first."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == numbers[name]:
            start = stack.index(name)
            found.append(frozenset(stack[start:]))
            del stack[start:]

    for name in sorted(edges):
        if name not in numbers:
            visit(name)
    return found


def summary(of: Picture) -> list[tuple[str, str]]:
    """The figures of a checkout, each with its name."""
    sizes = Counter(of.rooms[name] for name in of.lines if of.lines[name] > 1)
    crowded = [f"{room} {files}" for room, files in sizes.most_common() if files > MANY_FILES]
    longest = sorted(of.lines.items(), key=lambda item: -item[1])
    return [
        ("files", str(len(of.lines))),
        ("lines", f"{sum(of.lines.values()):,}"),
        ("rooms", str(len(set(of.rooms.values())))),
        (f"rooms of more than {MANY_FILES} files", ", ".join(crowded) or "none"),
        ("arrows between rooms", str(len(of.arrows))),
        ("imports between rooms", str(sum(of.arrows.values()))),
        ("pairs of rooms that import each other", str(len(of.upward))),
        ("upward imports (the fewer of such a pair)", str(sum(of.upward.values()))),
        ("circles of modules", str(len(of.circles))),
        ("modules in circles", str(sum(map(len, of.circles)))),
        ("levels (longest chain of imports)", str(max(of.levels.values(), default=0))),
        ("largest file", f"{longest[0][0]} {longest[0][1]}" if longest else "none"),
        ("files of more than 400 lines", str(sum(lines > 400 for lines in of.lines.values()))),
        (f"classes of more than {MANY_LINES} lines", str(sum(c.lines > MANY_LINES for c in of.classes))),
        (f"classes of more than {MANY_METHODS} public methods", str(sum(c.public > MANY_METHODS for c in of.classes))),
        (
            f"constructors of more than {MANY_ARGUMENTS} arguments",
            str(sum(c.arguments > MANY_ARGUMENTS for c in of.classes)),
        ),
        (f"dataclasses of more than {MANY_FIELDS} fields", str(sum(c.fields > MANY_FIELDS for c in of.classes))),
    ]


def details(of: Picture, with_arrows: bool = False) -> Iterator[str]:
    """The lines of the text after the figures."""
    yield "\nRooms: files, lines, lowest and highest level, rooms imported, rooms that import it"
    for room in sorted(set(of.rooms.values())):
        names = [name for name in of.lines if of.rooms[name] == room]
        levels = [of.levels[name] for name in names]
        lines = sum(of.lines[name] for name in names)
        out, into = (sum(pair[end] == room for pair in of.arrows) for end in (0, 1))
        yield f"  {room:36}{len(names):4}{lines:7,}  {min(levels):3}–{max(levels):<3}{out:4}{into:4}"
    if with_arrows:
        yield "\nArrows"
        yield from (f"  {a} ─▶ {b}  {n}" for (a, b), n in sorted(of.arrows.items()))
    yield "\nUpward imports"
    yield from [f"  {a} ─▶ {b}  {n} (back {of.arrows[b, a]})" for (a, b), n in sorted(of.upward.items())] or ["  none"]
    yield "\nCircles of modules"
    yield from ["  " + " ─ ".join(circle) for circle in of.circles] or ["  none"]
    yield "\nLargest files"
    yield from (f"  {n:5} {name}" for name, n in sorted(of.lines.items(), key=lambda item: -item[1])[:12])
    yield "\nLarge classes: lines, public methods, arguments of __init__, fields of a dataclass"
    large = sorted((c for c in of.classes if c.is_large), key=lambda c: (-c.lines, c.name))
    yield from (f"  {c.lines:5}{c.public:4}{c.arguments:4}{c.fields:4}  {c.name}" for c in large)


def side_by_side(old: Picture, new: Picture) -> Iterator[str]:
    """The figures of two checkouts as a table of Markdown."""
    yield "| | before | now |\n|---|---|---|"
    for (name, before), (_, now) in zip(summary(old), summary(new), strict=True):
        yield f"| {name} | {before} | {now} |"


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.import_picture", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="print the figures of OLD beside")
    parser.add_argument("--arrows", action="store_true", help="print every arrow between rooms")
    given = parser.parse_args(arguments)
    here = picture(given.root)
    if given.compare:
        print("\n".join(side_by_side(picture(given.compare), here)))
        return
    print("\n".join(f"{name:50} {value}" for name, value in summary(here)))
    print("\n".join(details(here, given.arrows)))


if __name__ == "__main__":
    main()

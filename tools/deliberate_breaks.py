"""Break the code on purpose, one place at a time, and report whether the named test notices.

    python -m tools.deliberate_breaks                 all of tools/deliberate_breaks.toml
    python -m tools.deliberate_breaks NAME …          some of them
    python -m tools.deliberate_breaks --list          names and reasons only

Each break replaces one text, which must occur exactly once in its file, in a temporary copy of the tree; the checkout
is never changed. Its test runs first without the break and must pass, then with it and must fail. A test that cannot be
collected proves nothing and counts as an error. Ends with 1 unless every break is caught.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tools" / "deliberate_breaks.toml"
CPU_SECONDS = 180
"""Of each process of a test, so that a loop without end is stopped on any machine, and a slow one does not matter."""
WAIT_SECONDS = 1200
"""In which a test ends that waits for what never comes; its own waits end much earlier (``tests/support/waits.py``)."""
_PASSED, _FAILED = 0, 1  # exit codes of pytest; others are errors of collection or usage
_STOPPED = (-signal.SIGXCPU, -signal.SIGKILL)  # what the system does at the limit of CPU seconds


@dataclass(frozen=True, slots=True)
class Break:
    """One defect: ``text`` in ``file`` becomes ``becomes``; ``tests`` are the arguments of pytest that must fail."""

    name: str
    why: str
    file: str
    text: str
    becomes: str
    tests: tuple[str, ...]

    def occurrences(self, root: Path) -> int:
        """How often the text occurs in the file."""
        return (root / self.file).read_text(encoding="utf-8").count(self.text)


def breaks(path: Path = LIST) -> list[Break]:
    """Read the list."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Break(name, **{**each, "tests": tuple(each["tests"].split())}) for name, each in given.items()]


def copied(root: Path, target: Path) -> None:
    """Copy the files that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, timeout=60)
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            # ``wal2lake/pipelines`` is a link: without it a test would import another tree's.
            shutil.copy2(root / name, target / name, follow_symlinks=False)


def run_tests(
    tree: Path, tests: tuple[str, ...], cpu_seconds: int = CPU_SECONDS, wait_seconds: float = WAIT_SECONDS
) -> int | None:
    """Run pytest in a tree with this interpreter; its exit code, None if it does not end within these bounds."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
    paths = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    # Options for the tests of the caller: a plug-in that they name may be in the tree of the caller only.
    environment.pop("PYTEST_ADDOPTS", None)
    # A shell sets the limit, which the tests and what they start inherit.
    limited = ["sh", "-c", f'ulimit -t {cpu_seconds}; exec "$@"', "sh", *command]
    try:
        done = subprocess.run(
            limited, cwd=tree, env=environment, capture_output=True, check=False, timeout=wait_seconds, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode in _STOPPED else done.returncode


def judged(one: Break, tree: Path, passes: Callable[[tuple[str, ...]], bool]) -> str:
    """Apply a break in a copy of the tree, run its test, and restore the file; returns what was found."""
    if one.occurrences(tree) != 1:
        return f"error: the text occurs {one.occurrences(tree)} times"
    if not passes(one.tests):
        return "error: the test fails without the break"
    path = tree / one.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(one.text, one.becomes), encoding="utf-8")
    try:
        code = run_tests(tree, one.tests)
    finally:
        path.write_text(whole, encoding="utf-8")
    if code is None or code == _FAILED:
        return "caught" if code == _FAILED else "caught: no end"
    return "NOT CAUGHT" if code == _PASSED else f"error: pytest ended with {code}"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.deliberate_breaks", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="names of breaks (default: all)")
    parser.add_argument("--list", action="store_true", help="print names and reasons")
    given = parser.parse_args(arguments)
    known = {each.name: each for each in breaks()}
    if unknown := set(given.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    wanted = [known[name] for name in given.names or known]
    if given.list:
        print("\n".join(f"{each.name:34} {each.why}" for each in wanted))
        return 0
    passed: dict[tuple[str, ...], bool] = {}
    results = []
    with tempfile.TemporaryDirectory(prefix="deliberate-breaks-") as folder:
        tree = Path(folder)
        copied(ROOT, tree)
        for one in wanted:
            started = time.monotonic()

            def passes(tests: tuple[str, ...]) -> bool:
                if tests not in passed:
                    passed[tests] = run_tests(tree, tests) == _PASSED
                return passed[tests]

            results.append(judged(one, tree, passes))
            print(f"{one.name:34} {results[-1]:14} {time.monotonic() - started:4.0f} s  {one.why}", flush=True)
    print(f"{sum(each.startswith('caught') for each in results)} of {len(results)} caught")
    return int(not all(each.startswith("caught") for each in results))


if __name__ == "__main__":
    sys.exit(main())

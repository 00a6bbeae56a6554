"""Where the CPU time of a test run goes, whatever else the machine does: ``pytest -p tests.support.cpu_seconds``.

Counted are the process of the test and all that it started: servers, Java, Spark's workers, commands. What the first
test of a process starts (a server, a JVM) is counted with that test.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SHOWN = 160
_TICKS = os.sysconf("SC_CLK_TCK")
_NAME = "cpu_seconds"
_files: dict[str, float] = defaultdict(float)
_tests: dict[str, float] = defaultdict(float)
_last: list[float] = []


def tree_seconds(root: int | None = None) -> float:
    """User and system time of a process (this one), its living descendants, and all of theirs that have ended."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(entry.name))
        ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    total, waiting = 0, [root or os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children[pid]
    return total / _TICKS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if call.when == "teardown":
        now = tree_seconds()
        # What was not waited for (a killed process's children) is lost with it: never less than nothing.
        report.user_properties.append((_NAME, max(0.0, now - (_last[0] if _last else 0.0))))
        _last[:] = [now]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, seconds in report.user_properties:
        if name == _NAME and report.when == "teardown":
            _files[report.nodeid.partition("::")[0]] += seconds
            _tests[report.nodeid] += seconds


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("CPU seconds")
    terminalreporter.line(f"{sum(_files.values()):9.1f} all")
    for title, found in (("files", _files), ("tests", _tests)):
        terminalreporter.line(f"          {title}")
        for name in sorted(found, key=found.__getitem__, reverse=True)[:SHOWN]:
            terminalreporter.line(f"{found[name]:9.1f} {name}")

"""The order of a parallel run: the longest tests first, so that no process works alone at the end.

A process that becomes free takes the next piece of work: a test of the files named here, else a whole file, so that
what a file's tests share (a database, an installed wheel) is made once. Without xdist only the order applies.

A Java process costs ten CPU seconds and its first merge as many. So the tests that use the session of their own process
are for the first process, and it takes those that only start the command when there is nothing else; the other
processes the other way round. None is idle while anything is left.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

# By the seconds of their longest test. Their tests share nothing but the servers, Spark and the command.
_TEST_BY_TEST = (
    "tests/pipelines/test_live_snapshots.py",
    "tests/faults/test_cuts.py",
    "tests/pipelines/test_live_runs.py",
    "tests/faults/test_large_slices.py",
    "tests/end_to_end/test_schema_changes.py",
    "tests/end_to_end/test_lake_features.py",
    "tests/end_to_end/test_runs_apart.py",
    "tests/end_to_end/test_broken_folders.py",
    "tests/faults/test_delete_modes_program.py",
    "tests/faults/test_continuity_program.py",
    "tests/faults/test_resumed_snapshots.py",
    "tests/faults/test_incremental_kills.py",
    "tests/faults/test_kill.py",
    "tests/faults/test_schema_change_kills.py",
    "tests/faults/test_snapshots_under_load.py",
    "tests/faults/test_lake_signal_kills.py",
    "tests/faults/test_large_transactions.py",
    "tests/faults/test_older_transactions.py",
    "tests/end_to_end/test_quarantine.py",
    "tests/end_to_end/test_continuity.py",
    "tests/pipelines/test_replays.py",
)
# Of the others: those that take minutes as a whole, then by what they start.
_FIRST = ("tests/ui/test_dagster_ui.py", "tests/end_to_end/test_installed.py")
_FOLDERS = ("faults", "end_to_end", "pipelines", "golden", "delta", "postgres", "property")
# Files of some ten CPU seconds among many of less than one.
_BEFORE_OTHER_UNITS = (
    "tests/unit/quality/",
    "tests/unit/engine/test_slice_large.py",
    "tests/unit/lake/test_delete_modes_model.py",
    "tests/house/test_imports.py",
)
# Great Expectations takes three CPU seconds to import: once is enough.
_TOGETHER = ("tests/unit/quality/",)
_ROOT = Path(__file__).parents[2]
_OWN_SESSION = re.compile(r"support\.spark import .*\b(SETTINGS|test_session)\b|[(,] ?spark(: \w+)?[,)]")
_COMMAND = re.compile(r"[(,] ?program(: \w+)?[,)]")


def rank(nodeid: str) -> tuple[int, int]:
    """The smaller, the earlier."""
    file = nodeid.partition("::")[0]
    if file in _FIRST:
        return 0, 0
    if file in _TEST_BY_TEST:
        return 1, _TEST_BY_TEST.index(file)
    folder = file.removeprefix("tests/").partition("/")[0]
    if folder in _FOLDERS:
        return 2, _FOLDERS.index(folder)
    return 3, 0 if file.startswith(_BEFORE_OTHER_UNITS) else 1


def piece(nodeid: str) -> str:
    """What one process takes at a time: the test, or its file, or the files of a folder."""
    file = nodeid.partition("::")[0]
    if file in _TEST_BY_TEST:
        return nodeid
    return next((folder for folder in _TOGETHER if file.startswith(folder)), file)


@cache
def reluctance(file: str, is_first: bool) -> int:
    """How late the first process, or another one, takes a file's tests: later, the more Java it would start for it."""
    path = _ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if _OWN_SESSION.search(text):
        return 0 if is_first else 2
    if _COMMAND.search(text):
        return 1 if is_first else 0
    return 0 if is_first else 1


class LongestFirst(LoadScopeScheduling):
    """xdist's scheduling by pieces, in the order of the tests."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return piece(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        is_first = node.gateway.id == "gw0"
        taken = min(self.workqueue, key=lambda scope: reluctance(scope.partition("::")[0], is_first))
        self.workqueue.move_to_end(taken, last=False)
        super()._assign_work_unit(node)

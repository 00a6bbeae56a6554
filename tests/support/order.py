"""The order of a parallel run: the longest tests first, so that no process works alone at the end.

A process that becomes free takes the next piece of work: a test of the files named here, else a whole file, so that
what a file's tests share (a database, an installed wheel) is made once. Without xdist only the order applies.

A Java process costs ten CPU seconds and its first merge as many. So the tests that use the session of their own
process are for the first process, and it takes those that only start the command, or Dagster, when there is nothing
else; the other processes the other way round; the third one begins with those that use the Kafka broker of their
process. Of the tests with a session no more processes take a part than there are cores: another one would end no
sooner for it, and have started Java for the last minute. Of more than two processes for each core the last one takes
what needs no Java, and ends with it: those tests wait more than others, and when four processes came to them at the
end, a fifth of two cores was idle for their 160 seconds.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests.support.cores import own_cores

# By the seconds of their longest test. Their tests share nothing but the servers, Spark and the command.
_TEST_BY_TEST = (
    "tests/pipelines/test_live_snapshots.py",
    "tests/faults/test_cuts.py",
    "tests/faults/test_cuts_upkeep.py",
    "tests/pipelines/test_live_runs.py",
    "tests/faults/test_large_slices.py",
    "tests/end_to_end/test_schema_changes.py",
    "tests/end_to_end/test_keys_made_again.py",
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
    "tests/faults/test_incremental_job_kills.py",
    "tests/faults/test_standby.py",
    "tests/end_to_end/test_versions.py",
    "tests/soak/test_soak.py",
    "tests/faults/test_large_transactions.py",
    "tests/faults/test_older_transactions.py",
    "tests/end_to_end/test_quarantine.py",
    "tests/end_to_end/test_continuity.py",
    "tests/pipelines/test_replays.py",
)
# Of the others: those that take minutes as a whole and start Java processes of their own, then by what they start.
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
_BROKER = re.compile(r"[(,] ?kafka: Broker[,)]|[(,] ?kafka[,)].*:$", re.MULTILINE)
_COMMAND = re.compile(r"[(,] ?program(: \w+)?[,)]|live_dagster\(")


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


class Needs(Enum):
    """The Java process that a piece starts in its worker, unless that has one."""

    SESSION = "the session of the tests"
    COMMAND = "the one that commands borrow"
    BROKER = "that of Kafka, beside the one that commands borrow"
    NONE = "none"


# How late the first process, the second one, and each of the others takes them.
_FIRST_WORKER = {Needs.SESSION: 0, Needs.NONE: 1, Needs.COMMAND: 2, Needs.BROKER: 3}
_SECOND_WORKER = {Needs.COMMAND: 0, Needs.NONE: 1, Needs.SESSION: 2, Needs.BROKER: 3}
_THIRD_WORKER = {Needs.BROKER: 0, Needs.COMMAND: 1, Needs.NONE: 2, Needs.SESSION: 3}
_OTHER_WORKERS = {Needs.COMMAND: 0, Needs.NONE: 1, Needs.BROKER: 2, Needs.SESSION: 3}


def reluctance(scope: str, worker: str) -> int:
    """How late a process takes a piece: later, the more it would compute only to have Java ready for it."""
    named = {"gw0": _FIRST_WORKER, "gw1": _SECOND_WORKER, "gw2": _THIRD_WORKER}
    order = named.get(worker, _OTHER_WORKERS)
    return order[needs_of(scope)]


def is_for(scope: str, worker: str, cores: int, workers: int) -> bool:
    """Whether a process takes a piece at all. One that stands in for a process that has crashed takes any."""
    number, needs = int(worker.removeprefix("gw")), needs_of(scope)
    if 2 * cores < workers == number + 1:
        return needs is Needs.NONE
    return not cores <= number < workers or needs is not Needs.SESSION


@cache
def needs_of(scope: str) -> Needs:
    """What the tests of a file start, told by what they ask for."""
    file = scope.partition("::")[0]
    if file in _FIRST:
        return Needs.COMMAND
    path = _ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if _OWN_SESSION.search(text):
        return Needs.SESSION
    if _BROKER.search(text):
        return Needs.BROKER
    return Needs.COMMAND if _COMMAND.search(text) else Needs.NONE


class LongestFirst(LoadScopeScheduling):
    """xdist's scheduling by pieces, in the order of the tests."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._cores = len(own_cores())

    def _split_scope(self, nodeid: str) -> str:
        return piece(nodeid)

    def _reschedule(self, node: Any) -> None:
        worker = node.gateway.id
        if any(is_for(scope, worker, self._cores, self.numnodes) for scope in self.workqueue):
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()

    def _assign_work_unit(self, node: Any) -> None:
        worker = node.gateway.id

        # xdist gives each process a first piece, suited or not.
        def order(scope: str) -> tuple[bool, int]:
            return not is_for(scope, worker, self._cores, self.numnodes), reluctance(scope, worker)

        taken = min(self.workqueue, key=order)
        self.workqueue.move_to_end(taken, last=False)
        super()._assign_work_unit(node)

"""Automatic maintenance: bounds the number of files and log entries of a table.

Small files are compacted by size: about sixteen files of one class become one of the next. So each row is rewritten at
most once per class, however large the table grows, and a pass is bounded in bytes. A larger file is rewritten only if
many of its rows are marked as deleted (``wear``). The rounds in which a table is compacted differ between tables, so
that hundreds of tables changed by the same rounds are not compacted in the same one. The commit is marked as not
changing data; a crash before it leaves unreferenced files, which VACUUM removes.

Log entries are removed when they are older than ``wal2lake.lake.history.minutes``, replaced files when they are that
old and half an hour, or large in sum (``cleaning``). Tables are created with the history and at least half an hour as
their own retention, so that their checkpoints expire both too. A log is listed at every commit, so an unbounded one
would make each round slower than the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean
from cdc_core.lake.maintenance.moving import MovedPart, move
from cdc_core.lake.maintenance.wear import PASS_BYTES, is_worn, worn, worn_parts
from cdc_core.lake.schema.lake_schema import phase

_SMALLEST = _WORN_BYTES = 64 << 10
_FACTOR = 8
_CLASSES = 3
_FILES, _MIN, _MAX = 16, 8, 20
_MEMORY_BYTES = 256 << 20
_CLEAN_EVERY = 100
_LONG_MINUTES, _LONG_TIMES = 120, 5
# A pass of more bytes takes longer than the Spark job that runs it beside the rounds (``maintain_behind``).
_AT_ONCE_BYTES = 2 << 20


def compact(
    table: DeltaTable,
    enough: int = _FILES,
    among: set[str] | None = None,
    pass_bytes: int = PASS_BYTES,
    key: Sequence[str] = (),
) -> int:
    """Compact ``enough`` or more small files of a class; returns their number. One pass, of at most ``pass_bytes``.

    ``among`` are the paths of the files to choose from, if not all; the new file's path is added to it. If another
    writer's commit removed one of them first, nothing is changed. ``key``: the order of rows in the new file
    (``move``).
    """
    if not passable(table, enough, among):
        return 0
    chosen = _fitting(table, _chosen(table.files, enough, among, pass_bytes))
    if not chosen:
        return 0
    made = move(table, [MovedPart(file) for file in chosen], key)
    if made is None:
        return 0
    if among is not None:
        among.update(file.path for file in made)
    return len(chosen)


def renew(
    table: DeltaTable, among: set[str] | None = None, pass_bytes: int = PASS_BYTES, key: Sequence[str] = ()
) -> bool:
    """Move rows of files with many rows marked as deleted to a new file; one pass. Returns whether there was any.

    ``among``: as in ``compact``, but without the new file. A table that does not allow marks (any more) has a file
    rewritten at once, however large it is.
    """
    files = [file for file in table.files if file.vector is not None and (among is None or file.path in among)]
    if not worn(files):
        return False
    return move(table, worn_parts(table, files, pass_bytes), key) is not None


def _fitting(table: DeltaTable, chosen: Sequence[DataFile]) -> list[DataFile]:
    """Return the chosen files without those that are large in memory; none if only few are left.

    The new file is read as a whole where some of its rows change, and compressed files may be much larger in memory.
    """
    sizes = [table.bytes_in_memory(file) for file in chosen]
    fitting, octets = [], 0
    for file, size in zip(chosen, sizes, strict=True):
        if size <= _MEMORY_BYTES // 2 and octets + size <= _MEMORY_BYTES:
            fitting.append(file)
            octets += size
    return fitting if len(fitting) >= min(len(chosen), _MIN) else []


def passable(table: DeltaTable, enough: int = _FILES, among: set[str] | None = None) -> bool:
    """Whether a pass of ``compact`` has any work."""
    return len(_chosen(table.files, enough, among, PASS_BYTES)) >= 2


def _chosen(files: Sequence[DataFile], enough: int, among: set[str] | None, pass_bytes: int) -> list[DataFile]:
    """Return the files of one pass. Ended versions are not mixed with rows that can change."""
    if among is not None:
        files = [file for file in files if file.path in among]
    current = choose([file for file in files if not file.is_history], enough, pass_bytes)
    return current or choose([file for file in files if file.is_history], enough, pass_bytes)


def choose(files: Sequence[DataFile], enough: int = _FILES, pass_bytes: int = PASS_BYTES) -> list[DataFile]:
    """Return the files that one pass compacts: those of the smallest class that has ``enough``, in the log's order."""
    by_class: dict[int, list[DataFile]] = {}
    for file in files:
        by_class.setdefault(_class(file.size), []).append(file)
    for number in range(_CLASSES):
        class_files = by_class.get(number, [])
        if len(class_files) >= enough:
            chosen, octets = [], 0
            for file in class_files:
                octets += file.size
                if octets > pass_bytes:
                    break
                chosen.append(file)
            return chosen
    return []


def maintain_after(table: DeltaTable, since: int, history_minutes: int, key: Sequence[str] = ()) -> None:
    """Compact, and clean once every _CLEAN_EVERY versions. ``since`` is the version before the round's own commits.

    ``key``: the order of rows in new files (``move``).
    """
    if not compact(table, _enough(table, since), key=key):
        renew(table, key=key)
    _clean_in_turn(table, since, history_minutes)


def maintain_briefly(table: DeltaTable, since: int, history_minutes: int, key: Sequence[str] = ()) -> bool:
    """As ``maintain_after``, without passes that a round should not wait for; returns whether one is due.

    That one is left to ``maintain_behind``.
    """
    enough, waits = _enough(table, since), False
    if passable(table, enough):
        waits = not _is_brief(_chosen(table.files, enough, None, PASS_BYTES))
        if not waits:
            compact(table, enough, key=key)
    if due := _worn(table):
        # A vector of many rows is a request more in each round, if the log is in an object store.
        waits = waits or not (_is_brief(due) and renew(table, key=key))
    _clean_in_turn(table, since, history_minutes)
    return waits


def moved_at_once(table: DeltaTable, marked: Sequence[MarkedRows]) -> Collection[str]:
    """Return the paths of files of which a commit is to move the other rows, instead of marking these.

    They are those that ``maintain_briefly`` would move after it, in a data file and a log entry more. A change feed is
    made of the rows that leave their files, so there it is only the marked ones that leave.
    """
    if table.definition.feeds_changes:
        return ()
    due = [marks.file for marks in marked if is_worn(marks.file, len(marks.places)) and _has_others(marks)]
    if not any(file.size >= _WORN_BYTES for file in due) or not _is_brief(due):
        return ()
    return {file.path for file in due} if sum(map(table.bytes_in_memory, due)) <= _MEMORY_BYTES else ()


def maintain_behind(table: DeltaTable, key: Sequence[str] = ()) -> bool:
    """Make one pass beside the rounds that change the table; returns whether another one is due.

    A round may have asked for it because of few files, as it was the table's turn (``maintain_briefly``).
    """
    done = bool(compact(table, _MIN, key=key)) or renew(table, key=key)
    return done and (passable(table) or bool(_worn(table)))


def _has_others(marks: MarkedRows) -> bool:
    return len(marks.places) < marks.file.live


def _enough(table: DeltaTable, since: int) -> int:
    return _MIN if is_its_turn(table, since, _FILES) else _MAX


def _is_brief(files: Sequence[DataFile]) -> bool:
    return sum(file.size for file in files) <= _AT_ONCE_BYTES


def _worn(table: DeltaTable) -> list[DataFile]:
    """Return the files that rounds have rewritten because of marked rows.

    Smaller ones are not: what the rounds that mark their rows add is as small, and is compacted together with them.
    """
    return [file for file in worn(table.files) if file.size >= _WORN_BYTES]


def _clean_in_turn(table: DeltaTable, since: int, history_minutes: int) -> None:
    # Cleaning lists the log, and what it removes of a long one is few.
    is_long = (table.definition.log_minutes or 0) > _LONG_MINUTES
    if history_minutes and is_its_turn(table, since, _CLEAN_EVERY * (_LONG_TIMES if is_long else 1)):
        clean(table, history_minutes)


def is_its_turn(table: DeltaTable, since: int, period: int) -> bool:
    """Whether the table has passed its own turn, one version in ``period``, since the version ``since``."""
    own = phase(table.path, period)
    return (table.version - own) // period != (since - own) // period


def _class(size: int) -> int:
    number, limit = 0, _SMALLEST
    while size >= limit and number < _CLASSES:
        number, limit = number + 1, limit * _FACTOR
    return number

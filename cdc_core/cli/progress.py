"""Progress bars of a snapshot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cdc_core.schema.table import TableId
from cdc_core.snapshot.reports import SnapshotProgress


@contextmanager
def snapshot_progress(console: Console) -> Iterator[Callable[[SnapshotProgress], None]]:
    """One progress bar per table, removed after the snapshot; without a terminal, one line per finished table."""
    if not console.is_terminal:
        yield (
            lambda progress: (
                console.print(f"{progress.table}: {progress.rows:,} rows", highlight=False) if progress.done else None
            )
        )
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[TableId, int] = {}

        def show(progress: SnapshotProgress) -> None:
            if progress.table not in tasks:
                tasks[progress.table] = bars.add_task(str(progress.table), total=progress.rows_estimated)
            total = max(progress.rows, 1) if progress.done else progress.rows_estimated
            bars.update(tasks[progress.table], completed=progress.rows, total=total)  # type: ignore[arg-type]

        yield show


def log_snapshot_notifications() -> None:
    """Log messages of log signals and notifications of snapshots to standard error."""
    logging.basicConfig(format="%(message)s")
    for name in ("cdc_core.snapshot.signals.processor", "cdc_core.snapshot.notifications"):
        logging.getLogger(name).setLevel(logging.INFO)

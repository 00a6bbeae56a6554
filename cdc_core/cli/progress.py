"""Progress bars of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cdc_core.engine.reports import SnapshotProgress
from cdc_core.schema.table import TableId


@contextmanager
def snapshot_progress(console: Console) -> Iterator[Callable[[SnapshotProgress], None]]:
    """A bar a table, gone when the snapshot is; on something that is no terminal, one line a finished table."""
    if not console.is_terminal:
        yield lambda news: console.print(f"{news.table}: {news.rows:,} rows", highlight=False) if news.done else None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[TableId, int] = {}

        def show(news: SnapshotProgress) -> None:
            if news.table not in tasks:
                tasks[news.table] = bars.add_task(str(news.table), total=news.rows_estimated)
            total = max(news.rows, 1) if news.done else news.rows_estimated
            bars.update(tasks[news.table], completed=news.rows, total=total)  # type: ignore[arg-type]

        yield show

"""Compares lake tables with their source at one LSN, and repairs rows that differ (docs/reconcile.md).

``Reconciler`` compares the tables of one connector's lake, all rows or those that a ``ReconcileRequest`` asks for,
under one snapshot of the source, and writes rows that differ if it is asked to. Its result is a ``ReconcileReport``
with a ``TableResult`` for each table. ``ReconcileOptions`` are its settings.

A comparison reads only, and may be repeated and interrupted at any time. A repair reads the rows of the source again
and writes them through the lake's door, so a repeated repair does not change rows that are equal. Only the keys of
rows in results are values of rows, which are shown only where the user asked for them.

Not behind this door: how rows are written (``cdc_core.lake``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.reconcile.options import ReconcileOptions as ReconcileOptions
    from cdc_core.reconcile.reports import ReconcileReport as ReconcileReport
    from cdc_core.reconcile.reports import TableResult as TableResult
    from cdc_core.reconcile.session import Reconciler as Reconciler
    from cdc_core.reconcile.session import ReconcileRequest as ReconcileRequest

lazily(
    __name__,
    {
        "ReconcileOptions": "options",
        "ReconcileReport": "reports",
        "ReconcileRequest": "session",
        "Reconciler": "session",
        "TableResult": "reports",
    },
)

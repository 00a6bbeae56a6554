"""Compares lake tables with their source at one LSN, and repairs rows that differ (docs/reconcile.md).

Comparing  ``ReconcileRun`` compares a ``ComparedPart`` of each table (all rows, keys that changed since a moment, or a
           sample) under a ``SourceView``, a read-only snapshot of the source that is read by a ``ReadPlan`` at a
           ``ReadPace``. ``Comparisons`` is what all comparisons of a connector share, with
           ``SlotChanges``, which the slot has and the lake lacks. ``ChangelogCheck`` compares changelogs, too.
Repairing  ``RepairRun`` writes the rows that differ (``Repair``), and compares them again.
Results    ``ReconcileReport`` and ``TableResult``; ``left_out`` is that of a table that is not compared. ``Journal``
           stores each result as soon as it is known. ``Key`` and ``KeyList`` are keys of rows that differ.
Settings   ``ReconcileOptions``.

A comparison reads only, and may be repeated and interrupted at any time. A repair reads the rows of the source again
and writes them through the lake's door, so a repeated repair does not change rows that are equal. Only ``Key`` and
``KeyList`` contain values of rows, which are shown only where the user asked for them.

Not behind this door: how rows are written (``cdc_core.lake``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.reconcile.compare import Comparisons as Comparisons
    from cdc_core.reconcile.journal import Journal as Journal
    from cdc_core.reconcile.options import ReconcileOptions as ReconcileOptions
    from cdc_core.reconcile.partial import ComparedPart as ComparedPart
    from cdc_core.reconcile.read_plan import ReadPlan as ReadPlan
    from cdc_core.reconcile.repair import Repair as Repair
    from cdc_core.reconcile.repair_run import RepairRun as RepairRun
    from cdc_core.reconcile.reports import ReconcileReport as ReconcileReport
    from cdc_core.reconcile.reports import TableResult as TableResult
    from cdc_core.reconcile.reports import left_out as left_out
    from cdc_core.reconcile.run import ReconcileRun as ReconcileRun
    from cdc_core.reconcile.slot_changes import SlotChanges as SlotChanges
    from cdc_core.reconcile.source_side import ReadPace as ReadPace
    from cdc_core.reconcile.view import SourceView as SourceView

lazily(
    __name__,
    {
        "ComparedPart": "partial",
        "Comparisons": "compare",
        "Journal": "journal",
        "ReadPace": "source_side",
        "ReadPlan": "read_plan",
        "ReconcileOptions": "options",
        "ReconcileReport": "reports",
        "ReconcileRun": "run",
        "Repair": "repair",
        "RepairRun": "repair_run",
        "SlotChanges": "slot_changes",
        "SourceView": "view",
        "TableResult": "reports",
        "left_out": "reports",
    },
)

"""Delta Lake as a destination: each captured table, its changelog and its quarantine, and the lake's own records.

Where        ``LakeOptions`` are the settings, ``LakePaths`` the folders in a ``Storage``. A ``scope`` is a slot in an
             epoch (``scope_of``, ``epoch_of``). ``DeleteModes`` and ``FeaturePolicy`` are settings by table;
             ``lake_properties`` and ``lake_schema`` are what a table is created with.
Rows         ``TypingPlan`` says how each table's rows are typed. A ``Spool`` carries a batch to the tasks, in files of
             their ``Owner``; a ``DiscardedSpool`` decodes it without a lake.
A table      ``LakeTable`` says where a table stands (``TablePosition``, ``ChangelogPosition``, ``LakePosition``) and
             does what is done outside of rounds. ``TableChecks``, by ``compiled_checks``, judges its rows.
A round      A ``SliceOrder`` says what to append and up to which LSN to merge (``Replay``), in which schema version
             (``TargetSchema``) and after which snapshot (``SnapshotInForce``). ``Work`` runs orders by a ``SliceTask``,
             and gives back a ``SliceOutcome`` for each (``QuarantineReport``, ``WAITS_FOR_EARLIER``); ``Upkeep``
             maintains tables meanwhile.
Chunks       ``write_chunks`` writes a ``ChunkOrder`` of ``ChunkFile`` between two rounds, into the table of a
             ``Merge``, and returns a ``ChunkOutcome``. ``StagedRows``, ``StagedFile`` and ``write_staged`` are rows
             that wait for that.
A snapshot   A ``ReadTarget`` is the table that is read into: tasks write ``RangeFiles`` to its ``NewFiles``, judged by
             ``ReadChecks``, and ``ReadTables`` makes them the table's content. ``RangeLog``
             (``FinishedRange``) lets an interrupted one continue; ``SnapshotLog`` has what each
             ``TakenSnapshot`` shows.
Comparison   ``Records`` decides what is compared of a table (``Target``). A ``TableComparison`` compares it with the
             rows of a ``SourceRead`` under a snapshot (``ShownBySource``), and the changes that only the slot has
             (``ChangesInSlot``): ``DifferentRows``, with ``Differences`` (``State``, ``KeyList``). ``KeyedRepair``
             reads rows again and writes them. ``ChangelogCheck`` returns what is wrong with a changelog
             (``ChangelogFound``).
Records      ``StreamLog`` of the stream (``StreamReader``, ``StreamRecord``, ``LastCommit``); ``RoundLog`` of rounds
             (``RecordedTable``, ``TableState``, ``Cut``); ``SchemaLog`` of schema versions and pauses
             (``SchemaVersion``, ``TableHistory``, ``Pause``), of which ``TableVersions`` is the state of one table, and
             ``SchemaSteps`` the way from one to the next; ``ProgressLog``, ``RangePlans`` (``RangePlan``) of
             incremental snapshots; ``ReconciliationLog`` (``Reconciliation``) of comparisons; ``StreamTables`` of
             messages and transactions (``StreamTable``); ``NotificationLog`` (``NotificationRow``) and
             ``record_topics``.
Readers      ``open_lake`` opens a lake for programs that read it (``OpenedLake``): ``ConsistentTables`` and
             ``TableAtVersion`` at one round, ``TableChanges`` between two positions; ``LakeDataSource`` for
             Spark. ``maintain_tables`` compacts and cleans (``MaintainReport``).

Durability: what an operation returns is committed, with the position that it reached in the same commit. So every
operation may be repeated, by the same run or another one, and does nothing the second time; one that meets another
writer raises TransientError and has changed nothing of what it reports. Readers never see a part of a commit. Threads:
values and tasks are immutable and picklable; logs and stores belong to one thread; any number of readers may be beside
them. One table is written by one task at a time, which commits of others do not break but may delay.

Not behind this door: versions and files of Delta tables, deletion vectors, indexes of keys, the columns of change rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.lake.checks.compiled import compiled_checks as compiled_checks
    from cdc_core.lake.checks.table_checks import TableChecks as TableChecks
    from cdc_core.lake.chunks.chunk_file import ChunkFile as ChunkFile
    from cdc_core.lake.chunks.jobs import write_chunks as write_chunks
    from cdc_core.lake.chunks.task import ChunkOrder as ChunkOrder
    from cdc_core.lake.chunks.task import ChunkOutcome as ChunkOutcome
    from cdc_core.lake.compare.between import ChangesInSlot as ChangesInSlot
    from cdc_core.lake.compare.between import ShownBySource as ShownBySource
    from cdc_core.lake.compare.changelog import ChangelogCheck as ChangelogCheck
    from cdc_core.lake.compare.comparison import TableComparison as TableComparison
    from cdc_core.lake.compare.differences import ChangelogFound as ChangelogFound
    from cdc_core.lake.compare.differences import Differences as Differences
    from cdc_core.lake.compare.differences import KeyList as KeyList
    from cdc_core.lake.compare.differences import State as State
    from cdc_core.lake.compare.judge import DifferentRows as DifferentRows
    from cdc_core.lake.compare.keyed_repair import KeyedRepair as KeyedRepair
    from cdc_core.lake.compare.source_side import SourceRead as SourceRead
    from cdc_core.lake.compare.target import Records as Records
    from cdc_core.lake.compare.target import Target as Target
    from cdc_core.lake.delete_modes import DeleteModes as DeleteModes
    from cdc_core.lake.delta.storage import Storage as Storage
    from cdc_core.lake.epochs import epoch_of as epoch_of
    from cdc_core.lake.epochs import scope_of as scope_of
    from cdc_core.lake.evolution.steps import SchemaSteps as SchemaSteps
    from cdc_core.lake.evolution.table_versions import TableVersions as TableVersions
    from cdc_core.lake.options import LakeOptions as LakeOptions
    from cdc_core.lake.paths import LakePaths as LakePaths
    from cdc_core.lake.positions import ChangelogPosition as ChangelogPosition
    from cdc_core.lake.positions import LakePosition as LakePosition
    from cdc_core.lake.readers.consistent_tables import ConsistentTables as ConsistentTables
    from cdc_core.lake.readers.opened_lake import OpenedLake as OpenedLake
    from cdc_core.lake.readers.opened_lake import open_lake as open_lake
    from cdc_core.lake.readers.table_at_version import TableAtVersion as TableAtVersion
    from cdc_core.lake.readers.table_changes import TableChanges as TableChanges
    from cdc_core.lake.rows.discard import DiscardedSpool as DiscardedSpool
    from cdc_core.lake.rows.run_files import Owner as Owner
    from cdc_core.lake.rows.spool import Spool as Spool
    from cdc_core.lake.rows.typing_plan import TypingPlan as TypingPlan
    from cdc_core.lake.schema.features import FeaturePolicy as FeaturePolicy
    from cdc_core.lake.schema.lake_schema import lake_properties as lake_properties
    from cdc_core.lake.schema.lake_schema import lake_schema as lake_schema
    from cdc_core.lake.schema.target_schema import TargetSchema as TargetSchema
    from cdc_core.lake.slice.jobs import Work as Work
    from cdc_core.lake.slice.order import Merge as Merge
    from cdc_core.lake.slice.order import Replay as Replay
    from cdc_core.lake.slice.order import SliceOrder as SliceOrder
    from cdc_core.lake.slice.order import SnapshotInForce as SnapshotInForce
    from cdc_core.lake.slice.outcome import SliceOutcome as SliceOutcome
    from cdc_core.lake.slice.reports import QuarantineReport as QuarantineReport
    from cdc_core.lake.slice.task import SliceTask as SliceTask
    from cdc_core.lake.slice.upkeep_line import Upkeep as Upkeep
    from cdc_core.lake.spark.data_source import LakeDataSource as LakeDataSource
    from cdc_core.lake.stores.notifications import NotificationLog as NotificationLog
    from cdc_core.lake.stores.notifications import NotificationRow as NotificationRow
    from cdc_core.lake.stores.progress_log import ProgressLog as ProgressLog
    from cdc_core.lake.stores.quarantine import WAITS_FOR_EARLIER as WAITS_FOR_EARLIER
    from cdc_core.lake.stores.range_log import FinishedRange as FinishedRange
    from cdc_core.lake.stores.range_log import RangeLog as RangeLog
    from cdc_core.lake.stores.range_plans import RangePlan as RangePlan
    from cdc_core.lake.stores.range_plans import RangePlans as RangePlans
    from cdc_core.lake.stores.reconciliations import Reconciliation as Reconciliation
    from cdc_core.lake.stores.reconciliations import ReconciliationLog as ReconciliationLog
    from cdc_core.lake.stores.round_lookup import Cut as Cut
    from cdc_core.lake.stores.rounds import RecordedTable as RecordedTable
    from cdc_core.lake.stores.rounds import RoundLog as RoundLog
    from cdc_core.lake.stores.rounds import TableState as TableState
    from cdc_core.lake.stores.schema_log import Pause as Pause
    from cdc_core.lake.stores.schema_log import SchemaLog as SchemaLog
    from cdc_core.lake.stores.schema_log import SchemaVersion as SchemaVersion
    from cdc_core.lake.stores.schema_log import TableHistory as TableHistory
    from cdc_core.lake.stores.snapshot_log import SnapshotLog as SnapshotLog
    from cdc_core.lake.stores.snapshot_log import TakenSnapshot as TakenSnapshot
    from cdc_core.lake.stores.staged_rows import StagedFile as StagedFile
    from cdc_core.lake.stores.staged_rows import StagedRows as StagedRows
    from cdc_core.lake.stores.staged_rows import write_staged as write_staged
    from cdc_core.lake.stores.stream_log import LastCommit as LastCommit
    from cdc_core.lake.stores.stream_log import StreamLog as StreamLog
    from cdc_core.lake.stores.stream_log import StreamReader as StreamReader
    from cdc_core.lake.stores.stream_log import StreamRecord as StreamRecord
    from cdc_core.lake.stores.stream_table import StreamTable as StreamTable
    from cdc_core.lake.stores.stream_tables import StreamTables as StreamTables
    from cdc_core.lake.stores.topics import record_topics as record_topics
    from cdc_core.lake.table import LakeTable as LakeTable
    from cdc_core.lake.table import TablePosition as TablePosition
    from cdc_core.lake.write.maintain_tables import MaintainReport as MaintainReport
    from cdc_core.lake.write.maintain_tables import maintain_tables as maintain_tables
    from cdc_core.lake.write.read_table import ReadTables as ReadTables
    from cdc_core.lake.write.read_target import NewFiles as NewFiles
    from cdc_core.lake.write.read_target import RangeFiles as RangeFiles
    from cdc_core.lake.write.read_target import ReadTarget as ReadTarget
    from cdc_core.lake.write.refused_reads import ReadChecks as ReadChecks

lazily(
    __name__,
    {
        "ChangelogCheck": "compare.changelog",
        "ChangelogFound": "compare.differences",
        "ChangelogPosition": "positions",
        "ChangesInSlot": "compare.between",
        "ChunkFile": "chunks.chunk_file",
        "ChunkOrder": "chunks.task",
        "ChunkOutcome": "chunks.task",
        "ConsistentTables": "readers.consistent_tables",
        "Cut": "stores.round_lookup",
        "DeleteModes": "delete_modes",
        "Differences": "compare.differences",
        "DifferentRows": "compare.judge",
        "DiscardedSpool": "rows.discard",
        "FeaturePolicy": "schema.features",
        "FinishedRange": "stores.range_log",
        "KeyList": "compare.differences",
        "KeyedRepair": "compare.keyed_repair",
        "LakeDataSource": "spark.data_source",
        "LakeOptions": "options",
        "LakePaths": "paths",
        "LakePosition": "positions",
        "LakeTable": "table",
        "LastCommit": "stores.stream_log",
        "MaintainReport": "write.maintain_tables",
        "Merge": "slice.order",
        "NewFiles": "write.read_target",
        "NotificationLog": "stores.notifications",
        "NotificationRow": "stores.notifications",
        "OpenedLake": "readers.opened_lake",
        "Owner": "rows.run_files",
        "Pause": "stores.schema_log",
        "ProgressLog": "stores.progress_log",
        "QuarantineReport": "slice.reports",
        "RangeFiles": "write.read_target",
        "RangeLog": "stores.range_log",
        "RangePlan": "stores.range_plans",
        "RangePlans": "stores.range_plans",
        "ReadChecks": "write.refused_reads",
        "ReadTables": "write.read_table",
        "ReadTarget": "write.read_target",
        "Reconciliation": "stores.reconciliations",
        "ReconciliationLog": "stores.reconciliations",
        "RecordedTable": "stores.rounds",
        "Records": "compare.target",
        "Replay": "slice.order",
        "RoundLog": "stores.rounds",
        "SchemaLog": "stores.schema_log",
        "SchemaSteps": "evolution.steps",
        "SchemaVersion": "stores.schema_log",
        "ShownBySource": "compare.between",
        "SliceOrder": "slice.order",
        "SliceOutcome": "slice.outcome",
        "SliceTask": "slice.task",
        "SnapshotInForce": "slice.order",
        "SnapshotLog": "stores.snapshot_log",
        "SourceRead": "compare.source_side",
        "Spool": "rows.spool",
        "StagedFile": "stores.staged_rows",
        "StagedRows": "stores.staged_rows",
        "State": "compare.differences",
        "Storage": "delta.storage",
        "StreamLog": "stores.stream_log",
        "StreamReader": "stores.stream_log",
        "StreamRecord": "stores.stream_log",
        "StreamTable": "stores.stream_table",
        "StreamTables": "stores.stream_tables",
        "TableAtVersion": "readers.table_at_version",
        "TableChanges": "readers.table_changes",
        "TableChecks": "checks.table_checks",
        "TableComparison": "compare.comparison",
        "TableHistory": "stores.schema_log",
        "TablePosition": "table",
        "TableState": "stores.rounds",
        "TableVersions": "evolution.table_versions",
        "TakenSnapshot": "stores.snapshot_log",
        "Target": "compare.target",
        "TargetSchema": "schema.target_schema",
        "TypingPlan": "rows.typing_plan",
        "Upkeep": "slice.upkeep_line",
        "WAITS_FOR_EARLIER": "stores.quarantine",
        "Work": "slice.jobs",
        "compiled_checks": "checks.compiled",
        "epoch_of": "epochs",
        "lake_properties": "schema.lake_schema",
        "lake_schema": "schema.lake_schema",
        "maintain_tables": "write.maintain_tables",
        "open_lake": "readers.opened_lake",
        "record_topics": "stores.topics",
        "scope_of": "epochs",
        "write_chunks": "chunks.jobs",
        "write_staged": "stores.staged_rows",
    },
)

"""The lake of one connector: where its tables are, the record of its stream, and which tables it has.

record of the stream ─▶ scope (slot, epoch) ─▶ positions of the tables ─▶ known, unusable
                     └▶ adoption             ─▶ actions of the snapshot mode
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.errors import CdcError, UnreadableError
from cdc_core.lake import (
    LakeOptions,
    LakePaths,
    LakeTable,
    SchemaLog,
    Storage,
    StreamLog,
    StreamReader,
    StreamRecord,
    TableChecks,
    TypingPlan,
    compiled_checks,
    lake_properties,
    scope_of,
)
from cdc_core.offsets import Adoption
from cdc_core.postgres import PostgresOptions
from cdc_core.quality import QualityOptions
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import ModeActions, SnapshotOptions, mode_actions

_THREADS = 8


@dataclass(frozen=True, slots=True)
class ConnectorLake:
    """Where a connector's tables are, and what their logs say. Holds nothing open; any thread may use it.

    ``plan`` has the types of its tables' columns, ``name`` is ``topic.prefix``. ``recorded`` reads the record of the
    stream again only when it has changed. ``copies``: as in ``Storage``. Methods raise LakeError if a log cannot be
    read.
    """

    options: LakeOptions
    snapshot: SnapshotOptions
    postgres: PostgresOptions
    plan: TypingPlan
    quality: QualityOptions
    name: str
    recorded: StreamReader = field(default_factory=StreamReader, compare=False, repr=False)
    copies: str = ""

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self.postgres.slot_name

    @property
    def paths(self) -> LakePaths:
        """The paths of its tables, absolute: Spark's processes may have another working folder."""
        root = self.options.lake_path
        if root and ":" not in root.partition("/")[0]:
            root = os.path.abspath(root)
        return LakePaths(root, self.name, Storage.of(self.options, self.copies))

    @property
    def claim(self) -> str:
        """The folder of its tables, by its only name; a folder of this machine is no other machine's."""
        base = re.sub(r"^file:/+", "/", self.paths.base)
        return base if "://" in base else f"{socket.gethostname()}:{os.path.realpath(base)}"

    @property
    def record(self) -> StreamRecord | None:
        """The record of the stream; None for a lake without one."""
        return self.recorded.read(self.paths.stream)

    @property
    def scope(self) -> str:
        """The scope of its positions: the slot, and the epoch of the stream that is recorded."""
        record = self.record
        return scope_of(self.slot, 0 if record is None else record.epoch)

    @property
    def adoption(self) -> Adoption | None:
        """What was recorded when its stream was taken over from another connector; None if it was not."""
        record = self.record
        return Adoption.from_json(record.adopted) if record is not None and record.adopted else None

    @property
    def mode(self) -> ModeActions:
        """The actions of ``snapshot.mode`` for its tables, and of an adoption: it fills them, or does not."""
        mode, adoption = mode_actions(self.snapshot), self.adoption
        if adoption is None:
            return mode
        return replace(mode, first=adoption.fills, interrupted=adoption.fills, later=mode.later and adoption.fills)

    @property
    def stream_log(self) -> StreamLog:
        """The log of the record of the stream, not read yet, for the operation that writes it."""
        return StreamLog(self.paths.stream, self.options.lake_history_minutes)

    @property
    def schema_log(self) -> SchemaLog:
        """The log of the tables' schema versions, not read yet."""
        return SchemaLog(self.paths.schema_versions, lake_properties(self.options.lake_history_minutes))

    def checks(self, tables: Iterable[TableSchema]) -> TableChecks:
        """Return the checks of every table. Raises ConfigError or TableError if a rule or a rule file is not valid."""
        return compiled_checks(self.quality, self.plan, self.postgres, tables)

    def known(self, tables: Sequence[TableSchema]) -> set[TableId]:
        """Return the tables whose snapshot is in the lake; without those whose folder cannot be used."""
        return self.known_and_unusable(tables)[0]

    def known_and_unusable(self, tables: Sequence[TableSchema]) -> tuple[set[TableId], dict[TableId, CdcError]]:
        """Return the tables whose snapshot is in the lake, and those whose folder cannot be used (UnreadableError)."""
        paths, scope = self.paths, self.scope

        def is_read(table: TableSchema) -> bool | UnreadableError:
            try:
                return LakeTable(paths, scope, table.id).place(is_own=True).token is not None
            except UnreadableError as error:
                return error

        with ConnectorThreadPool(_THREADS) as pool:
            answers = {table.id: answer for table, answer in zip(tables, pool.map(is_read, tables), strict=True)}
        unusable: dict[TableId, CdcError] = {t: e for t, e in answers.items() if isinstance(e, UnreadableError)}
        return {table for table, answer in answers.items() if answer is True}, unusable

"""The spool: the files that transport messages from the slot's reader to the workers.

A spool file is an Arrow IPC stream of one relation version. The spool is a buffer bounded in bytes, not a log: after a
crash the slot sends everything again, so files are neither synced nor kept. They are in the folder of their run
(``run_folder``), and contain their owner, which a worker checks before it reads a row.

Four kinds, distinguished by the schema's metadata:

    raw        RAW_SCHEMA, undecoded row messages; decoded on the workers
    truncate   RAW_SCHEMA with empty payloads; one row per truncate of that table
    changes    change rows, decoded and masked in the driver: for tables with masked or excluded columns, whose clear
               text must not be written anywhere
    refused    RAW_SCHEMA with empty payloads: their rows, with values that are not UTF-8 and that were not written
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from cdc_core.decode import RAW_SCHEMA, RELATION_KEY, TABLE_KEY, decode_rows, separated
from cdc_core.errors import NotUtf8Error
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.rows.run_files import Owner, opening, writing
from cdc_core.lake.rows.shown import ShownByLake
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.private_files import create_private
from cdc_core.schema import Relation, RelationColumn, ReplicaIdentity, TableId, TableSchema
from cdc_core.worker_memory import MEMORY

_log = logging.getLogger(__name__)

_KIND_KEY = b"wal2lake.kind"
_COLUMN_KEY = b"wal2lake.column"
_RAW, _TRUNCATE, _CHANGES, _REFUSED = b"raw", b"truncate", b"changes", b"refused"

_KEPT_TYPERS = 2_000
_typers: dict[tuple[TypingPlan, str], RowTyper] = MEMORY.part()

# Larger batches exceed the CPU cache while their columns are decoded.
_DECODE_ROWS = 10_000


class Spool:
    """The spool files of a run, in its folder. One writer thread; any thread may release files."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.folder = folder
        self._owner = owner
        self._count = 0
        # Of each table as last written: to make the texts costs more than to write a few rows.
        self._texts: dict[TableId, tuple[TableSchema, str]] = {}
        self._relations: dict[TableId, tuple[Relation, str]] = {}

    def write_raw(self, relation: Relation, table: TableSchema, raw: pa.RecordBatch) -> Path:
        """Spool undecoded row messages of one relation version."""
        known = self._relations.get(table.id)
        if known is None or known[0] != relation:
            known = self._relations[table.id] = relation, _to_json(relation)
        return self._write(raw, table, {_KIND_KEY: _RAW, RELATION_KEY: known[1]})

    def write_truncates(self, table: TableSchema, raw: pa.RecordBatch) -> Path:
        """Spool truncate events (RAW_SCHEMA, payloads empty) of one table."""
        return self._write(raw, table, {_KIND_KEY: _TRUNCATE})

    def write_changes(self, typer: RowTyper, relation: Relation, raw: pa.RecordBatch) -> list[Path]:
        """Decode and mask in this process, and spool the change rows; rows that are not UTF-8 without their values."""
        refused: list[Path] = []
        try:
            batches = list(_decoded(typer, relation, raw))
        except NotUtf8Error as found:
            raw, bad, first = separated(raw, relation)
            error = first or found
            batches = list(_decoded(typer, relation, raw))
            empty = bad.set_column(bad.num_columns - 1, RAW_SCHEMA.field("payload"), pa.array([b""] * bad.num_rows))
            refused = [self._write(empty, typer.table, {_KIND_KEY: _REFUSED, _COLUMN_KEY: error.column})]
        changes = pa.Table.from_batches(batches, typer.change_schema)
        return [*refused, self._write(changes, typer.table, {_KIND_KEY: _CHANGES})]

    def _write(self, data: pa.RecordBatch | pa.Table, table: TableSchema, facts: dict[bytes, str | bytes]) -> Path:
        self._count += 1
        path = self.folder / f"{self._count:08d}.arrow"
        known = self._texts.get(table.id)
        if known is None or known[0] is not table:  # equal versions may differ in their fingerprints
            known = self._texts[table.id] = table, table.to_json()
        metadata = {**facts, TABLE_KEY: known[1], **self._owner.metadata(str(table.id))}
        schema = data.schema.with_metadata(metadata)
        rows = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        with writing(path):
            create_private(path)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
                writer.write_table(rows.replace_schema_metadata(metadata), max_chunksize=_DECODE_ROWS)
        return path


class ReadSpoolFiles:
    """Reads spool files of one table version as change rows; picklable, run by a Spark task. Item: the files' paths.

    ``owner`` is the run whose files they must be, ``table`` theirs (``schema.table``; None: any). ``shown`` is what the
    lake table has without them: rows among it that are not UTF-8 are left out.
    """

    def __init__(
        self, plan: TypingPlan, owner: Owner, table: str | None = None, shown: ShownByLake | None = None
    ) -> None:
        self._shown = shown or ShownByLake()
        self._plan = plan
        self._owner = owner
        self._table = table

    def _typer(self, table: str) -> RowTyper:
        """Return the typer of a table version, cached per process: creating it takes longer than typing a few rows."""
        key = (self._plan, table)
        typer = _typers.get(key)
        if typer is None:
            if len(_typers) >= _KEPT_TYPERS:
                _typers.clear()
            typer = _typers[key] = self._plan.typer(TableSchema.from_json(table))
        return typer

    def __call__(self, item: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield change rows (``RowTyper.change_schema``) in stream order.

        Raises ProtocolError if a message does not follow the protocol, NotUtf8Error for text that is not UTF-8,
        TransientError if a file no longer exists or is not of this run and table.
        """
        for path in item:
            with opening(path):
                source = pa.memory_map(path, "rb")
            with source:
                yield from self._read(path, source)

    def _read(self, path: str, source: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(source) as reader:
            metadata = reader.schema.metadata
            self._owner.check(metadata, path, self._table)
            kind = metadata[_KIND_KEY]
            if kind == _CHANGES:
                yield from (batch.replace_schema_metadata(None) for batch in reader)
                return
            typer = self._typer(metadata[TABLE_KEY].decode())
            if kind == _REFUSED:
                for batch in reader:
                    column = metadata[_COLUMN_KEY].decode()
                    self._leave_out(batch, NotUtf8Error(str(typer.table.id), column, batch.column("lsn")[0].as_py()))
                yield pa.RecordBatch.from_pylist([], schema=typer.change_schema)
                return
            if kind == _TRUNCATE:
                yield from (typer.truncates(batch) for batch in reader)
                return
            relation = _from_json(metadata[RELATION_KEY].decode())
            for batch in reader:
                try:
                    rows = list(_decoded(typer, relation, batch))
                except NotUtf8Error as found:
                    good, bad, first = separated(batch, relation)
                    self._leave_out(bad, first or found)
                    rows = list(_decoded(typer, relation, good))
                    rows = rows or [pa.RecordBatch.from_pylist([], schema=typer.change_schema)]
                yield from rows

    def _leave_out(self, rows: pa.RecordBatch, error: NotUtf8Error) -> None:
        """Log that rows are left out; raises the error if the lake table needs one of them."""
        if not self._shown.has_all(rows):
            raise error
        _log.warning(
            "%d changes of %s that are not UTF-8 were left out: the table was read after them.",
            rows.num_rows,
            error.table,
        )


def in_groups(paths: list[Path], groups: int) -> list[tuple[str, ...]]:
    """Divide files into at most ``groups`` runs of consecutive files, one per task, about equal in number."""
    count = max(1, min(groups, len(paths)))
    bounds = [len(paths) * index // count for index in range(count + 1)]
    return [tuple(str(path) for path in paths[a:b]) for a, b in itertools.pairwise(bounds)]


def _decoded(typer: RowTyper, relation: Relation, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, raw.num_rows, _DECODE_ROWS):
        part = raw.slice(start, _DECODE_ROWS)
        yield typer.changes(part, decode_rows(part, relation))


def _to_json(relation: Relation) -> str:
    return json.dumps(asdict(relation))


def _from_json(text: str) -> Relation:
    raw = json.loads(text)
    raw["identity"] = ReplicaIdentity(raw["identity"])
    raw["columns"] = tuple(RelationColumn(**column) for column in raw["columns"])
    return Relation(**raw)

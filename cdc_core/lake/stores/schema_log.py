"""The versions of its source that each lake table has had, and whether it is paused or to be re-read.

A *schema version* is a numbered version of a table in the lake. It is recorded here before the lake table's own commit
puts it in force with a ``txn`` that contains the number (``positions.schema_version_app``): an entry without a commit
is ignored. Change rows contain the number of the schema version under which they were decoded, so that they can be read
with it however late they are merged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.schema import READ_AGAIN_THEN, Column, PauseCause, Projected, TableId, TableSchema, column_from_plain

_SCHEMA = pa.schema(
    [
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("kind", pa.string()),
        ("schema_version", pa.int64()),
        ("lsn", pa.int64()),
        ("source", pa.string()),
        ("parent", pa.int64()),
        ("projection", pa.string()),
        ("reason", pa.string()),
        ("remedy", pa.string()),
        ("cause", pa.string()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
        ("treatments", pa.string()),
    ]
)
_VERSION, _PAUSED, _RESUMED, _REREAD = "version", "paused", "resumed", "reread"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version. ``projection`` converts the lake's rows from the version ``parent``; None if that is not possible.

    (It then begins with a new snapshot.) ``table`` contains the columns of the stream, with attnums and fingerprint.
    The parent is not always the previous number: a schema version that a run decided, and of which no change is in the
    changelog, is decided again by the next. ``treatments`` are those of the columns by name, and of operations
    (``TypingPlan.treatments``).
    """

    number: int
    table: TableSchema
    projection: tuple[Projected, ...] | None = None
    parent: int | None = None
    treatments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a table is not merged, the remedy, and since when; ``lsn`` is the LSN at which it stopped.

    ``reason`` and ``remedy`` are for users. ``cause`` is None if a release that did not store it recorded the pause.
    """

    reason: str
    remedy: str
    lsn: int
    since: datetime
    cause: PauseCause | None = None

    @property
    def ends_by_reread(self) -> bool:
        """Whether the table is re-read automatically once the remedy has been applied to the source."""
        if self.cause is None:
            return self.remedy.endswith(READ_AGAIN_THEN)
        return self.cause.ends_by_reread


@dataclass(slots=True)
class TableHistory:
    """The log entries of one table: its schema versions by number, the current pause, and why it is to be re-read.

    ``reread`` applies while the lake table's schema version is at most the given number: a re-read creates a later one.
    ``lsns`` are the LSNs with which the schema versions were recorded: for a snapshot's, its own.
    """

    versions: dict[int, SchemaVersion]
    paused: Pause | None = None
    reread: tuple[int, str] | None = None
    lsns: dict[int, int] = field(default_factory=dict)


class SchemaLog:
    """The log of one connector. For one thread; small, a few rows per schema change."""

    def __init__(self, path: str, properties: dict[str, str]) -> None:
        self._path = path
        self._properties = properties
        self._opened: DeltaTable | None = None
        self._last: datetime | None = None

    def read(self) -> dict[TableId, TableHistory]:
        """Return every table's history."""
        self._opened = DeltaTable.open(self._path)
        rows = all_rows(self._opened, _SCHEMA)
        self._last = pc.max(rows.column("recorded_at")).as_py()
        histories: dict[TableId, TableHistory] = {}
        # row-wise: one row per schema change
        for row in rows.sort_by([("recorded_at", "ascending"), ("schema_version", "ascending")]).to_pylist():
            history = histories.setdefault(TableId(row["schema_name"], row["table_name"]), TableHistory({}))
            if row["kind"] == _VERSION:
                projection, treatments = _projection(row["projection"]), json.loads(row["treatments"])
                version = SchemaVersion(
                    row["schema_version"], _described(row["source"]), projection, row["parent"], treatments
                )
                history.versions[row["schema_version"]] = version
                history.lsns[row["schema_version"]] = row["lsn"]
            elif row["kind"] == _REREAD:
                history.reread = (row["schema_version"], row["reason"])
            elif row["kind"] == _PAUSED:
                cause = None if row["cause"] is None else PauseCause(row["cause"])
                history.paused = Pause(row["reason"], row["remedy"], row["lsn"], row["recorded_at"], cause)
            else:
                history.paused = None
        return histories

    def add_versions(self, versions: Sequence[tuple[TableId, SchemaVersion]], lsn: int) -> None:
        """Record versions before a lake commit puts them in force; of two with one number the later one counts."""
        if versions:
            self._append([self._version_row(table, version, lsn) for table, version in versions])

    def pause(self, table: TableId, cause: PauseCause, reason: str, remedy: str, lsn: int) -> Pause:
        """Record that a table is paused at ``lsn``."""
        since = self._append([self._row(table, _PAUSED, lsn, reason=reason, remedy=remedy, cause=cause.value)])
        return Pause(reason, remedy, lsn, since, cause)

    def resume(self, table: TableId, lsn: int) -> None:
        """Record that a table is resumed."""
        self._append([self._row(table, _RESUMED, lsn)])

    def want_reread(self, table: TableId, reason: str, schema_version: int, lsn: int) -> None:
        """Record that a table up to ``schema_version`` must be re-read, also if this run ends before that."""
        self._append([self._row(table, _REREAD, lsn, schema_version=schema_version, reason=reason)])

    @staticmethod
    def _row(table: TableId, kind: str, lsn: int, **facts: object) -> dict[str, object]:
        named = {"schema_name": table.schema, "table_name": table.table, "kind": kind, "lsn": int(lsn)}
        return {**named, **facts}

    def _version_row(self, table: TableId, version: SchemaVersion, lsn: int) -> dict[str, object]:
        return self._row(
            table,
            _VERSION,
            lsn,
            schema_version=version.number,
            source=_bare(version.table).to_json(),
            parent=version.parent,
            projection=None if version.projection is None else _to_json(version.projection),
            treatments=json.dumps(dict(version.treatments)),
        )

    def _append(self, rows: list[dict[str, object]]) -> datetime:
        """Append entries; returns the time that they have."""
        if self._last is None:
            self.read()
        # Entries are in the order in which they were made, also after one that a clock ahead of this one has dated.
        after = datetime.min.replace(tzinfo=UTC) if self._last is None else self._last + timedelta(microseconds=1)
        self._last = max(datetime.now(UTC), after)
        self._opened = log_table(self._opened, self._path, _SCHEMA, self._properties)
        append_rows(self._opened, [{**row, "recorded_at": self._last} for row in rows], _SCHEMA)
        return self._last


def _bare(table: TableSchema) -> TableSchema:
    """Return the table without the values for older rows: those of a masked column would be clear text."""
    return replace(table, columns=tuple(replace(column, missing=None) for column in table.columns))


@lru_cache(2_048)
def _described(source: str) -> TableSchema:
    # A run that re-reads many tables reads the log several times for each of them.
    return TableSchema.from_json(source)


def _to_json(projection: Sequence[Projected]) -> str:
    return json.dumps([asdict(projected) for projected in projection])


def _projection(text: str | None) -> tuple[Projected, ...] | None:
    if text is None:
        return None
    return tuple(
        Projected(entry["name"], entry["source"], entry["fill"], _column(entry["column"])) for entry in json.loads(text)
    )


def _column(raw: dict[str, object] | None) -> Column | None:
    return None if raw is None else column_from_plain(raw)

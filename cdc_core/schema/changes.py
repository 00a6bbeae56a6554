"""The words of schema evolution: what changed in a source table, what the lake does about it, and who decides.

``cdc_core.schema.evolution.decide`` makes a ``Decision`` of these; ``project`` folds a plan into one projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.table import Column, TableId, TableSchema


class SchemaChanges(StrEnum):
    """``wal2lake.lake.schema.changes``: what happens to a table whose changes the stream does not carry in full."""

    REREAD = "reread"
    PAUSE = "pause"


class LakeFeatures(StrEnum):
    """``wal2lake.lake.features``: Delta features that shut other readers out, ``auto`` where a change of the source
    needs one and the lake table is too large to be rewritten (``sink/delta/features``).
    """

    AUTO = "auto"
    WIDEST = "widest"
    MODERN = "modern"


class DroppedColumns(StrEnum):
    """``wal2lake.lake.dropped.columns``: a column that the source dropped stays, null from then on, or goes."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user chose."""

    changes: SchemaChanges = SchemaChanges.REREAD
    features: LakeFeatures = LakeFeatures.AUTO
    dropped: DroppedColumns = DroppedColumns.KEEP


class DeltaFeature(StrEnum):
    """Delta table features that only Spark writes.

    By the first two a plan is a change of metadata alone; the others are a matter of the table's layout.
    """

    COLUMN_MAPPING = "columnMapping"
    TYPE_WIDENING = "typeWidening"
    CLUSTERING = "clustering"
    COMMIT_TIMESTAMPS = "inCommitTimestamp"


class ChangeKind(StrEnum):
    """What happened to the source table."""

    ADD_COLUMN = "column added"
    DROP_COLUMN = "column dropped"
    RENAME_COLUMN = "column renamed"
    CHANGE_TYPE = "type changed"
    CHANGE_KEY = "key changed"
    CHANGE_IDENTITY = "replica identity changed"
    CHANGE_NULLABILITY = "nullability changed"
    ENUM_LABELS = "enum labels added"
    COMMENT = "comment changed"
    MOVED = "table renamed or moved"
    GENERATED = "generated column"
    RECREATED = "table dropped and created again"
    REWRITTEN = "rows rewritten"
    VALUES_UNKNOWN = "values of existing rows not known"
    TYPE_ALTERED = "type altered without rewriting stored values"
    PARTITIONS = "partitions attached or detached"
    UNLOGGED = "table unlogged"
    PUBLICATION = "publication changed"
    AMBIGUOUS = "columns cannot be distinguished"
    GONE = "table dropped"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change. ``column`` is the name from now on (empty for the table's own), ``before`` what stood there before:
    a column's or table's former name, type or label. ``detail`` is what stands there now.
    """

    kind: ChangeKind
    column: str = ""
    attnum: int = 0
    before: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MoveTable:
    """The table bears another name or schema from now on."""

    before: TableId
    after: TableId


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The lake's column goes, with its values."""

    name: str


@dataclass(frozen=True, slots=True)
class RetireColumn:
    """The lake's column stays and is null in every row written from now on."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """The lake's column keeps its values under another name."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """The lake's column takes the natural type of ``column``, which holds every value of the present one."""

    name: str
    column: Column


@dataclass(frozen=True, slots=True)
class AddColumn:
    """The lake gains a column. Every row in it takes ``fill``, PostgreSQL's text of a constant; None is null.

    The fill concerns the rows whose last event was decoded under a version without the column, and no other: an event
    of the new version carries its own value, null included.
    """

    column: Column
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class SetKey:
    """Changes find their rows by these columns from now on; none: the table is keyless."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """The text about the table (``column`` empty) or a column; None takes it away."""

    column: str
    text: str | None


Operation = MoveTable | DropColumn | RetireColumn | RenameColumn | WidenColumn | AddColumn | SetKey | Comment


class Verdict(StrEnum):
    """``FOLLOW``: apply the plan at this place in the stream. ``REREAD``: read this table alone again, at a place after
    this decision. ``REFUSE``: pause this table alone until somebody has acted.
    """

    FOLLOW = "follow"
    REREAD = "reread"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one table.

    ``changes`` say what was found. ``operations`` are FOLLOW's plan, in order, for one Delta commit; empty where only
    the description changed. ``needs`` are the Delta features that make the plan a change of metadata; with
    ``rewrites_lake`` the policy has the table rewritten whatever its size (``project``). ``table`` is the version
    in force from here on, with attnums and the marks it was decided by (None unless FOLLOW). ``reason`` is one sentence
    for REREAD and REFUSE, ``remedy`` one for REFUSE.
    """

    verdict: Verdict
    changes: tuple[SchemaChange, ...] = ()
    operations: tuple[Operation, ...] = ()
    needs: frozenset[DeltaFeature] = frozenset()
    rewrites_lake: bool = False
    table: TableSchema | None = None
    reason: str = ""
    remedy: str = ""

    @property
    def marks(self) -> Fingerprint | None:
        """The marks that the next decision starts from."""
        return self.table.fingerprint if self.table is not None else None


@dataclass(frozen=True, slots=True)
class Projected:
    """One column of the lake after a plan. ``source`` is the present column it is made from, None for a constant:
    ``fill`` then. ``column`` describes a column that is new or takes another type, None where the type stays.
    """

    name: str
    source: str | None
    fill: str | None = None
    column: Column | None = None


def project(columns: Sequence[str], operations: Iterable[Operation]) -> tuple[Projected, ...]:
    """The plan as one projection over the lake's present ``columns``, in their order, new ones last."""
    out = [Projected(name, name) for name in columns]
    for operation in operations:
        match operation:
            case DropColumn(name):
                out = [column for column in out if column.name != name]
            case RenameColumn(name, to):
                out = [Projected(to, c.source, c.fill, c.column) if c.name == name else c for c in out]
            case WidenColumn(name, column):
                out = [Projected(name, c.source, c.fill, column) if c.name == name else c for c in out]
            case AddColumn(column, fill):
                out.append(Projected(column.name, None, fill, column))
    return tuple(out)

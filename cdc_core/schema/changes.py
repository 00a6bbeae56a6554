"""The terms of schema evolution: changes of a source table, the lake's operations, and the user's policy.

``cdc_core.schema.evolution.decide`` returns a ``Decision``; ``project`` combines a plan into one projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.table import Column, TableId, TableSchema


class SchemaChanges(StrEnum):
    """``wal2lake.lake.schema.changes``: what happens to a table with changes that the stream does not fully contain."""

    REREAD = "reread"
    PAUSE = "pause"


class LakeFeatures(StrEnum):
    """``wal2lake.lake.features``: use of Delta features that some readers do not support.

    ``auto``: if a change of the source needs one and the lake table is too large to be rewritten
    (``lake/schema/features``).
    """

    AUTO = "auto"
    WIDEST = "widest"
    MODERN = "modern"


class DroppedColumns(StrEnum):
    """``wal2lake.lake.dropped.columns``: a column dropped in the source is kept, null from then on, or dropped."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Policy:
    """The user's choices."""

    changes: SchemaChanges = SchemaChanges.REREAD
    features: LakeFeatures = LakeFeatures.AUTO
    dropped: DroppedColumns = DroppedColumns.KEEP


class DeltaFeature(StrEnum):
    """Delta table features that wal2lake enables.

    With the first two a plan is a change of metadata only; the others concern the table's layout and its log.
    """

    COLUMN_MAPPING = "columnMapping"
    TYPE_WIDENING = "typeWidening"
    CLUSTERING = "clustering"
    COMMIT_TIMESTAMPS = "inCommitTimestamp"
    ROW_TRACKING = "rowTracking"
    CHANGE_FEED = "changeDataFeed"


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
    """One change. ``column`` is the new name (empty for the table itself).

    ``before`` is the previous value: a column's or table's former name, type or label. ``detail`` is the new value.
    """

    kind: ChangeKind
    column: str = ""
    attnum: int = 0
    before: str = ""
    detail: str = ""

    @property
    def text(self) -> str:
        """What happened, for the log."""
        if self.kind is ChangeKind.RENAME_COLUMN:
            return f"column {self.before} renamed to {self.column}"
        return f"{self.kind.value} {self.column}".rstrip()


class PauseCause(StrEnum):
    """Why a table is paused. The values are stored, so they are not changed."""

    NOT_PUBLISHED = "not published"
    PUBLISHED_OTHERWISE = "published under other names"
    UNLOGGED = "unlogged"
    NAME_CLASH = "column name not possible"
    DROPPED = "dropped"
    SCHEMA_CHANGE = "schema change"
    """The stream does not contain a change, and the policy is ``SchemaChanges.PAUSE``."""
    REREAD_FAILED = "re-read failed"
    REREAD_LIMIT = "too many re-reads"
    CHANGES_REFUSED = "changes refused"
    """Changes that were refused exceed a limit, or do not identify their rows."""
    NOT_CARRIED = "values not carried"
    """The server or its output plug-in does not send values exactly by which changes find their rows."""
    FOLDER = "folder unusable"
    """A folder of the table cannot be used, or cannot hold its rows."""

    @property
    def ends_by_reread(self) -> bool:
        """Whether the table is re-read automatically once the remedy has been applied to the source."""
        return self in _ENDING_BY_REREAD

    def remedy(self, action: str) -> str:
        """Return the remedy as a sentence. ``action`` is what the user does, without a full stop."""
        return f"{action}; {READ_AGAIN_THEN}" if self.ends_by_reread else f"{action}."


_ENDING_BY_REREAD = frozenset(
    {
        PauseCause.NOT_PUBLISHED,
        PauseCause.PUBLISHED_OTHERWISE,
        PauseCause.UNLOGGED,
        PauseCause.NAME_CLASH,
        PauseCause.DROPPED,
        PauseCause.NOT_CARRIED,
    }
)
READ_AGAIN_THEN = "it is then re-read."


@dataclass(frozen=True, slots=True)
class MoveTable:
    """The table has another name or schema from now on."""

    changes_lake: ClassVar[bool] = False
    before: TableId
    after: TableId


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The lake's column is dropped, with its values."""

    changes_lake: ClassVar[bool] = True
    name: str


@dataclass(frozen=True, slots=True)
class RetireColumn:
    """The lake's column stays and is null in every row written from now on."""

    changes_lake: ClassVar[bool] = True
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """The lake's column keeps its values under another name."""

    changes_lake: ClassVar[bool] = True
    name: str
    to: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """The lake's column gets the natural type of ``column``, which can represent every value of the present type."""

    changes_lake: ClassVar[bool] = True
    name: str
    column: Column


@dataclass(frozen=True, slots=True)
class AddColumn:
    """The lake gets a new column. Every existing row gets ``fill``, PostgreSQL's text of a constant; None is null.

    The fill applies only to rows whose last event was decoded under a version without the column: an event of the new
    version contains its own value, null included.
    """

    changes_lake: ClassVar[bool] = True
    column: Column
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class SetKey:
    """Changes identify rows by these columns from now on; none: the table is keyless."""

    changes_lake: ClassVar[bool] = True
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """The comment of the table (``column`` empty) or a column; None removes it."""

    changes_lake: ClassVar[bool] = False
    column: str
    text: str | None


# ``changes_lake`` of each: whether the lake table is changed by it, and gets a new schema version.
Operation = MoveTable | DropColumn | RetireColumn | RenameColumn | WidenColumn | AddColumn | SetKey | Comment


class Verdict(StrEnum):
    """The outcome of a decision.

    ``FOLLOW``: apply the plan at this position of the stream. ``REREAD``: re-read only this table, at a position after
    this decision. ``REFUSE``: pause only this table until the user has acted.
    """

    FOLLOW = "follow"
    REREAD = "reread"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one table.

    ``changes`` are the differences. ``operations`` are FOLLOW's plan, in order, for one Delta commit; empty if only the
    description changed. ``needs`` are the Delta features that make the plan a change of metadata; with
    ``rewrites_lake`` the policy requires a rewrite of the table whatever its size (``project``). ``table`` is the
    version in force from here on, with attnums and the fingerprint on which the decision is based (None unless FOLLOW).
    ``reason`` is one sentence for REREAD and REFUSE. ``cause`` and ``action`` are set for REFUSE: what the user does to
    end the cause, in words for ``PauseCause.remedy``.
    """

    verdict: Verdict
    changes: tuple[SchemaChange, ...] = ()
    operations: tuple[Operation, ...] = ()
    needs: frozenset[DeltaFeature] = frozenset()
    rewrites_lake: bool = False
    table: TableSchema | None = None
    reason: str = ""
    cause: PauseCause | None = None
    action: str = ""

    @property
    def remedy(self) -> str:
        """The remedy as a sentence for REFUSE, else empty."""
        return "" if self.cause is None else self.cause.remedy(self.action)

    @property
    def marks(self) -> Fingerprint | None:
        """The fingerprint for the next decision."""
        return self.table.fingerprint if self.table is not None else None


@dataclass(frozen=True, slots=True)
class Projected:
    """One column of the lake after a plan. ``source`` is the present column with its values, None for ``fill``.

    ``fill`` is a constant. ``column`` describes a column that is new or gets another type, None if the type stays.
    """

    name: str
    source: str | None
    fill: str | None = None
    column: Column | None = None


def project(columns: Sequence[str], operations: Iterable[Operation]) -> tuple[Projected, ...]:
    """Return the plan as one projection of the lake's present ``columns``, in their order, new ones last."""
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

"""Delta table features: which a lake table gets, when, and which of those that other programs enabled allow writing.

Column mapping makes a rename or a drop a change of metadata only, type widening does the same for a wider type. Both
exclude some readers.

    widest   never; such a change rewrites the table
    auto     when a change first needs one and the table is larger than wal2lake.merge.rewrite.max.bytes
    modern   from the start

An enabled feature is used regardless of the policy.

Deletion vectors mark changed rows of large files instead of rewriting these (``apply/ways``). They are enabled when a
merge first needs them, unless the policy is ``widest``. Liquid clustering by key, row tracking, a change data feed and
in-commit timestamps are enabled for the tables that are configured so; every reader can read such a table. All of them
are written by log entries of wal2lake's own (``delta/definition``), in the commit that first needs them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from cdc_core.errors import TableError
from cdc_core.lake.delta.definition import MAPPING_MODE, Definition
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.schema.project import SchemaStep, only_add_nulls, own_columns, traced
from cdc_core.schema import DeltaFeature, LakeFeatures, TableId, TableSchema
from cdc_core.selection import matches_table

_log = logging.getLogger(__name__)

EVOLVING = frozenset([DeltaFeature.COLUMN_MAPPING, DeltaFeature.TYPE_WIDENING])
# Features of writers that commits follow. Some ask for nothing unless a property or a column uses them (``_refusals``).
_KNOWN = frozenset(
    {
        *(feature.value for feature in DeltaFeature),
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"),
        *("timestampNtz", "v2Checkpoint", "deletionVectors", "domainMetadata", "vacuumProtocolCheck"),
    }
)
_RULES_OF_COLUMNS = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.invariants": "a column invariant",
}
_READERS = {
    DeltaFeature.COLUMN_MAPPING: "Spark and SQL through deltalake's QueryBuilder can read it, "
    "deltalake's to_pyarrow_table and polars cannot",
    DeltaFeature.TYPE_WIDENING: "Spark can read it, deltalake and polars cannot",
    DeltaFeature.CLUSTERING: "every reader can read it",
    DeltaFeature.COMMIT_TIMESTAMPS: "every reader can read it",
    DeltaFeature.ROW_TRACKING: "every reader can read it, and Spark its row ids (_metadata.row_id)",
    DeltaFeature.CHANGE_FEED: "every reader can read it, and Spark and deltalake its changes",
}
_VECTOR_READERS = (
    "Spark, polars 2.1 and SQL through deltalake's QueryBuilder can read it, deltalake's to_pyarrow_table cannot"
)
# Delta clusters by at most four columns, and only by columns with statistics.
_MAX_CLUSTERED, _WITH_STATISTICS = 4, 32
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


@dataclass(frozen=True, slots=True)
class Evolution:
    """How steps are applied to a lake table. ``enables``: by a change of metadata, with these features enabled first;
    None: every row is written.
    """

    enables: frozenset[DeltaFeature] | None


@dataclass(frozen=True, slots=True)
class FeaturePolicy:
    """``wal2lake.lake.features``, and the bytes of data files above which ``auto`` does not rewrite them.

    ``clustered``: patterns of the tables that are clustered by their key, ``tracked`` of those with row tracking,
    ``fed`` of those with a change data feed, which can be read for ``feed_hours`` at least. ``commit_timestamps``: for
    all tables.
    """

    features: LakeFeatures = LakeFeatures.AUTO
    rewrite_max_bytes: int = 0
    clustered: tuple[str, ...] = ()
    tracked: tuple[str, ...] = ()
    fed: tuple[str, ...] = ()
    feed_hours: int = 0
    commit_timestamps: bool = False

    @classmethod
    def of(cls, options: LakeOptions) -> FeaturePolicy:
        """Create the policy from the options."""
        return cls(
            options.lake_features,
            options.merge_rewrite_max_bytes,
            options.lake_clustered_tables,
            options.lake_row_tracking_tables,
            options.lake_change_feed_tables,
            options.lake_change_feed_hours,
            options.lake_commit_timestamps,
        )

    def marks_rows(self, lake: DeltaTable) -> bool:
        """Whether merges may mark rows of the table in deletion vectors: it has them, or may get them."""
        return lake.has_deletion_vectors or self.features is not LakeFeatures.WIDEST

    def missing(self, lake: DeltaTable, table: TableSchema | None = None) -> frozenset[DeltaFeature]:
        """Return the features to be enabled regardless of changes. ``table``: with the lake table's current columns."""
        required = EVOLVING if self.features is LakeFeatures.MODERN else frozenset()
        if self.commit_timestamps:
            required |= {DeltaFeature.COMMIT_TIMESTAMPS}
        for feature, patterns in ((DeltaFeature.ROW_TRACKING, self.tracked), (DeltaFeature.CHANGE_FEED, self.fed)):
            if table is not None and matches_table(patterns, table.id):
                required |= {feature}
        if self.cluster_by(lake, table):
            required |= {DeltaFeature.CLUSTERING}
        return required - features_on(lake)

    def cluster_by(self, lake: DeltaTable, table: TableSchema | None) -> tuple[str, ...]:
        """Return the key columns by which the table is to be clustered; empty if it is not, or cannot be, clustered."""
        if table is None or not matches_table(self.clustered, table.id):
            return ()
        known = {field.name: field.type for field in list(lake.schema)[:_WITH_STATISTICS]}
        columns = [name for name in table.lake_key if name in known and _has_bounds(known[name])]
        return tuple(columns[:_MAX_CLUSTERED])

    def evolution(self, lake: DeltaTable, steps: Sequence[SchemaStep]) -> Evolution:
        """Return how the steps are applied to the table."""
        there, needs = features_on(lake), needed(lake.schema, steps)
        if needs is not None and (needs <= there or self._wants_metadata(lake)):
            return Evolution(needs - there)
        return Evolution(None)

    def enable_missing(self, lake: DeltaTable, table: TableSchema) -> None:
        """Enable the features that the table is to have regardless of changes, in one commit.

        Raises CommitConflictError if another commit was made first.
        """
        missing, columns = self.missing(lake, table), self.cluster_by(lake, table)
        definition = self._with_feed_kept(enabled(lake, missing))
        if missing or (columns and lake.clustered_by != columns) or definition is not lake.definition:
            lake.commit(definition=definition, clustered_by=columns if columns else None)

    def _with_feed_kept(self, definition: Definition) -> Definition:
        """Return the definition of a table whose log has its changes for as long as they are to be read."""
        minutes, kept = 60 * self.feed_hours, definition.log_minutes
        if not definition.feeds_changes or kept is None or kept >= minutes:
            return definition
        return definition.with_log_kept(minutes)

    def _wants_metadata(self, lake: DeltaTable) -> bool:
        if self.features is LakeFeatures.AUTO:
            return sum(file.size for file in lake.files) > self.rewrite_max_bytes
        return self.features is LakeFeatures.MODERN


def features_on(lake: DeltaTable) -> frozenset[DeltaFeature]:
    """Return which of the features the table has."""
    features = {feature for feature in DeltaFeature if feature.value in lake.features}
    # Tables may have got the feature by a change of their protocol's version, and no feed.
    return frozenset(features if lake.definition.feeds_changes else features - {DeltaFeature.CHANGE_FEED})


def enabled(lake: DeltaTable, features: Iterable[DeltaFeature]) -> Definition:
    """Return the table's definition with features that it lacks, for its next commit."""
    definition = lake.definition
    for feature in features:
        match feature:
            case DeltaFeature.COLUMN_MAPPING:
                definition = definition.with_mapping()
            case DeltaFeature.TYPE_WIDENING:
                definition = definition.with_type_widening()
            case DeltaFeature.COMMIT_TIMESTAMPS:
                definition = definition.with_commit_timestamps(lake.version + 1, int(time.time() * 1000))
            case DeltaFeature.CLUSTERING:
                definition = definition.with_clustering()
            case DeltaFeature.ROW_TRACKING:
                definition = definition.with_row_tracking()
            case DeltaFeature.CHANGE_FEED:
                definition = definition.with_change_feed()
            case _:
                assert_never(feature)
    return definition


def require_writable(lake: DeltaTable, table: TableId) -> None:
    """Raise TableError if another program gave the table a feature or a rule that commits here would not follow."""
    refused = sorted(_refusals(lake))
    if refused:
        raise TableError(
            f"Another program gave the lake table of {table} what wal2lake cannot write: {', '.join(refused)}.",
            "Remove it (ALTER TABLE … DROP FEATURE, DROP CONSTRAINT or UNSET TBLPROPERTIES), or move the table's lake "
            f"folder away and run wal2lake snapshot with {table}.",
            str(table),
        )


def is_writable(lake: DeltaTable) -> bool:
    """Whether ``require_writable`` raises nothing."""
    return not _refusals(lake)


def _refusals(lake: DeltaTable) -> set[str]:
    refused = {f"table feature {name}" for name in lake.features - _KNOWN}
    properties = lake.properties
    refused |= {f"CHECK constraint {n[18:]}" for n in properties if n.startswith("delta.constraints.")}
    if properties.get(MAPPING_MODE) == "id":
        refused.add(f"{MAPPING_MODE}=id")
    if lake.definition.writers or lake.definition.versions[1] > 1:
        rules = {rule for field in lake.definition.fields for rule in field["metadata"] if rule in _RULES_OF_COLUMNS}
        refused |= {_RULES_OF_COLUMNS[rule] for rule in rules}
    return refused


def needed(schema: pa.Schema, steps: Sequence[SchemaStep]) -> frozenset[DeltaFeature] | None:
    """Return the features with which the steps write no row; None if rows have to be written with any features."""
    own = {field.name for field in own_columns(schema)}
    columns = {field.name: field.type for field in schema if field.name not in own}
    if only_add_nulls(columns, steps):
        return frozenset()
    origins, out = traced(list(columns), steps), set()
    for origin in origins:
        if origin.is_filled:
            return None
        if origin.source is None:
            continue
        if not origin.type.equals(columns[origin.source]):
            if not _is_widening(columns[origin.source], origin.type):
                return None
            out.add(DeltaFeature.TYPE_WIDENING)
    if moved_names(schema, steps):
        out.add(DeltaFeature.COLUMN_MAPPING)
    return frozenset(out)


def moved_names(schema: pa.Schema, steps: Sequence[SchemaStep]) -> frozenset[str]:
    """Return the columns that do not exist, or have another name, after the steps.

    ``__rescued`` contains texts by these names.
    """
    own = {field.name for field in own_columns(schema)}
    columns = [name for name in schema.names if name not in own]
    stay = {origin.source for origin in traced(columns, steps) if origin.source == origin.name}
    return frozenset(columns) - stay


def announce(table: str, features: Iterable[DeltaFeature], *, marks: bool = False) -> None:
    """Log one line for each enabled feature: the table, the feature, and which readers support it.

    ``marks``: deletion vectors were enabled, too. In the driver's process: what a task logs is not the run's.
    """
    names = {feature.value: _READERS[feature] for feature in features}
    for name, readers in sorted((names | ({"deletionVectors": _VECTOR_READERS} if marks else {})).items()):
        _log.warning("%s: Delta table feature %s was enabled; %s.", table, name, readers)


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether Delta stores minimum and maximum values of such a column, which clustering requires."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(is_number or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind))


def _is_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether Delta's type widening supports the change (protocol, "Type Widening"); also in array elements."""
    if pa.types.is_list(before) and pa.types.is_list(after):
        inner = before.value_type, after.value_type
        return bool(inner[0].equals(inner[1])) or _is_widening(*inner)
    if pa.types.is_decimal(after):
        whole = after.precision - after.scale
        if pa.types.is_decimal(before):
            return bool(whole >= before.precision - before.scale and after.scale >= before.scale)
        return before in _DIGITS and whole >= max(_DIGITS[before], 10)
    if before in _DIGITS and after in _DIGITS:
        return _DIGITS[before] < _DIGITS[after]
    if pa.types.is_float64(after):
        return bool(pa.types.is_float32(before)) or before in (pa.int8(), pa.int16(), pa.int32())
    return False

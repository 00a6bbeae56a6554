"""Delta features that exclude some readers or writers: when each is enabled for a lake table, and how it is used.

Column mapping makes a rename or a drop a change of metadata only, type widening does the same for a wider type. A table
that has one of them is written by Spark from then on: delta-rs cannot commit to it, and its files have other column
names.

    widest   never; such a change rewrites the table
    auto     when a change first needs one and the table is larger than wal2lake.merge.rewrite.max.bytes
    modern   from the start

An enabled feature is used regardless of the policy.

Deletion vectors mark changed rows of large files instead of rewriting these (``apply/ways``). They are enabled when a
merge first needs them, unless the policy is ``widest``; files of such a table are still committed without Spark.

Liquid clustering by key and in-commit timestamps are enabled for the tables that are configured so. Every reader can
read such a table; delta-rs cannot write it, so Spark does from then on.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.schema.project import Step, only_add_nulls, own_columns, project_schema, traced
from cdc_core.schema.changes import DeltaFeature, LakeFeatures
from cdc_core.schema.table import TableSchema
from cdc_core.selection.patterns import compile_all, matches_any

_log = logging.getLogger(__name__)

# Delta's table property that enables each feature.
PROPERTIES = {
    DeltaFeature.COLUMN_MAPPING: ("delta.columnMapping.mode", "name"),
    DeltaFeature.TYPE_WIDENING: ("delta.enableTypeWidening", "true"),
    DeltaFeature.COMMIT_TIMESTAMPS: ("delta.enableInCommitTimestamps", "true"),
}
EVOLVING = frozenset([DeltaFeature.COLUMN_MAPPING, DeltaFeature.TYPE_WIDENING])
# Features with which files can be committed by delta-rs, or by log entries of our own where they have deletion vectors.
_WRITABLE = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "checkConstraints", "v2Checkpoint", "deletionVectors"}
)
# Characters of column names that Delta on Spark supports with column mapping only.
SPARK_REFUSES = frozenset(" ,;{}()\n\t=")
_READERS = {
    DeltaFeature.COLUMN_MAPPING: "Spark and SQL through deltalake's QueryBuilder can read it, "
    "deltalake's to_pyarrow_table and polars cannot",
    DeltaFeature.TYPE_WIDENING: "Spark can read it, deltalake and polars cannot",
    DeltaFeature.CLUSTERING: "every reader can read it, only Spark can write it",
    DeltaFeature.COMMIT_TIMESTAMPS: "every reader can read it, only Spark can write it",
}
_VECTOR_READERS = (
    "Spark and SQL through deltalake's QueryBuilder can read it, deltalake's to_pyarrow_table and polars cannot"
)
# Delta clusters by at most four columns, and only by columns with statistics.
_MAX_CLUSTERED, _WITH_STATISTICS = 4, 32
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


class EvolutionMethod(enum.Enum):
    """How steps are applied to a lake table: rewritten by Arrow in the task, metadata only, or rewritten by Spark.

    The last two are one commit of Delta on Spark.
    """

    ARROW = "arrow"
    METADATA = "metadata"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Evolution:
    """The method, and the features that have to be enabled first."""

    method: EvolutionMethod
    enables: frozenset[DeltaFeature] = frozenset()


@dataclass(frozen=True, slots=True)
class FeaturePolicy:
    """``wal2lake.lake.features``, and the bytes of data files above which ``auto`` does not rewrite them.

    ``clustered``: patterns of the tables that are clustered by their key. ``commit_timestamps``: for all tables.
    """

    features: LakeFeatures = LakeFeatures.AUTO
    rewrite_max_bytes: int = 0
    clustered: tuple[str, ...] = ()
    commit_timestamps: bool = False

    @classmethod
    def of(cls, options: LakeOptions) -> FeaturePolicy:
        """Create the policy from the options."""
        return cls(
            options.lake_features,
            options.merge_rewrite_max_bytes,
            options.lake_clustered_tables,
            options.lake_commit_timestamps,
        )

    def marks_rows(self, lake: DeltaTable) -> bool:
        """Whether merges may mark rows of the table in deletion vectors: it has them, or may get them."""
        return lake.has_deletion_vectors or self.features is not LakeFeatures.WIDEST

    def missing(self, lake: DeltaTable, table: TableSchema | None = None) -> frozenset[DeltaFeature]:
        """Return the features to be enabled regardless of changes. ``table``: with the lake table's current columns."""
        wanted = EVOLVING if self.features is LakeFeatures.MODERN else frozenset()
        if self.commit_timestamps:
            wanted |= {DeltaFeature.COMMIT_TIMESTAMPS}
        if self.cluster_by(lake, table):
            wanted |= {DeltaFeature.CLUSTERING}
        return wanted - features_on(lake)

    def cluster_by(self, lake: DeltaTable, table: TableSchema | None) -> tuple[str, ...]:
        """Return the key columns by which the table is to be clustered; empty if it is not, or cannot be, clustered."""
        if table is None or not matches_any(compile_all(self.clustered), str(table.id)):
            return ()
        known = {each.name: each.type for each in list(lake.schema)[:_WITH_STATISTICS]}
        found = [name for name in table.lake_key if name in known and _has_bounds(known[name])]
        return tuple(found[:_MAX_CLUSTERED])

    def evolution(self, lake: DeltaTable, steps: Sequence[Step]) -> Evolution:
        """Return how the steps are applied to the table."""
        there = features_on(lake)
        needs = needed(lake.schema, steps)
        after = project_schema(lake.schema, steps)
        if needs is not None and needs <= there:
            # Without one of the features the steps only add columns of nulls, which delta-rs can add as well.
            return (
                Evolution(EvolutionMethod.METADATA, lacking_for_names(lake, after))
                if there
                else Evolution(EvolutionMethod.ARROW)
            )
        if needs is not None and self._wants_metadata(lake):
            return Evolution(EvolutionMethod.METADATA, (needs - there) | for_names(after) - there)
        return (
            Evolution(EvolutionMethod.SPARK, lacking_for_names(lake, after))
            if there
            else Evolution(EvolutionMethod.ARROW)
        )

    def _wants_metadata(self, lake: DeltaTable) -> bool:
        if self.features is LakeFeatures.AUTO:
            return sum(file.size for file in lake.files) > self.rewrite_max_bytes
        return self.features is LakeFeatures.MODERN


def features_on(lake: DeltaTable) -> frozenset[DeltaFeature]:
    """Return which of the features the table has: if any, only Spark can write it."""
    return frozenset(feature for feature in DeltaFeature if feature.value in lake.features)


@dataclass(frozen=True, slots=True)
class Writer:
    """With what a lake table can be written.

    ``arrow_adds``: delta-rs can add files to it, or replace its entire content. ``arrow_compacts``: delta-rs can
    replace its files by others with the same rows. ``arrow_rewrites``: delta-rs can replace files when rows change.
    ``spark_rewrites``: Spark can do so; it must if ``arrow_rewrites`` is not set, and one of the two always is.

        the table has                        adds     compacts   rewrites           Spark rewrites
        a feature of this module             Spark    Spark      Spark              yes
        a feature unknown to delta-rs        delta-rs delta-rs   Spark              yes
        the same, and deletion vectors       delta-rs Spark      Spark              yes
        names that Spark refuses             delta-rs delta-rs   delta-rs           no
        none of these                        delta-rs delta-rs   either, by size    yes
    """

    arrow_adds: bool
    arrow_compacts: bool
    arrow_rewrites: bool
    spark_rewrites: bool


def writer_of(lake: DeltaTable, schema: pa.Schema | None = None) -> Writer:
    """Return with what a lake table can be written: the only place that decides this.

    ``schema``: the columns to be written, if they are not the table's.
    """
    is_sparks, is_known = bool(features_on(lake)), lake.features <= _WRITABLE
    return Writer(
        arrow_adds=not is_sparks,
        arrow_compacts=not is_sparks and (is_known or not lake.has_deletion_vectors),
        arrow_rewrites=not is_sparks and is_known,
        spark_rewrites=is_sparks or not is_known or not for_names(lake.schema if schema is None else schema),
    )


def for_names(schema: pa.Schema) -> frozenset[DeltaFeature]:
    """Return the features that Spark needs to write columns of these names."""
    is_refused = any(SPARK_REFUSES & set(name) for name in schema.names)
    return frozenset([DeltaFeature.COLUMN_MAPPING]) if is_refused else frozenset()


def lacking_for_names(lake: DeltaTable, schema: pa.Schema) -> frozenset[DeltaFeature]:
    """As ``for_names``, the features that a table written by Spark lacks; empty for other tables."""
    there = features_on(lake)
    return for_names(schema) - there if there else frozenset()


def needed(schema: pa.Schema, steps: Sequence[Step]) -> frozenset[DeltaFeature] | None:
    """Return the features with which the steps write no row; None if rows have to be written with any features."""
    own = {each.name for each in own_columns(schema)}
    columns = {each.name: each.type for each in schema if each.name not in own}
    if only_add_nulls(columns, steps):
        return frozenset()
    found, out = traced(list(columns), steps), set()
    for each in found:
        if each.is_filled:
            return None
        if each.source is None:
            continue
        if not each.type.equals(columns[each.source]):
            if not _is_widening(columns[each.source], each.type):
                return None
            out.add(DeltaFeature.TYPE_WIDENING)
    if moved_names(schema, steps):
        out.add(DeltaFeature.COLUMN_MAPPING)
    return frozenset(out)


def moved_names(schema: pa.Schema, steps: Sequence[Step]) -> frozenset[str]:
    """Return the columns that do not exist, or have another name, after the steps.

    ``__rescued`` contains texts by these names.
    """
    own = {each.name for each in own_columns(schema)}
    columns = [name for name in schema.names if name not in own]
    stay = {each.source for each in traced(columns, steps) if each.source == each.name}
    return frozenset(columns) - stay


def announce_vectors(table: str) -> None:
    """As ``announce``, for deletion vectors, which are not among the features that only Spark writes."""
    _log.warning("%s: Delta table feature deletionVectors was enabled; %s.", table, _VECTOR_READERS)


def announce(table: str, features: Iterable[DeltaFeature]) -> None:
    """Log one line for each enabled feature: the table, the feature, and which readers support it."""
    for feature in sorted(features):
        _log.warning("%s: Delta table feature %s was enabled; %s.", table, feature.value, _READERS[feature])


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

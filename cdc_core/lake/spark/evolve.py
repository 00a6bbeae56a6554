"""Changes the schema version or content of lake tables that only Spark can write, in one Delta commit each."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core import failpoints
from cdc_core.lake.delta.table import DeltaTable, schema_json
from cdc_core.lake.names import RESCUED, helper
from cdc_core.lake.schema.features import Evolution, EvolutionMethod, features_on, lacking_for_names, moved_names
from cdc_core.lake.schema.project import Step, evolve, own_columns, project_schema, traced
from cdc_core.lake.spark.commit import Fields, enable, forget_lost, transaction
from cdc_core.lake.spark.expressions import parquet_files, quoted
from cdc_core.schema.changes import DeltaFeature

TEXTS = T.MapType(T.StringType(), T.StringType())


def evolve_by_spark(
    spark: SparkSession,
    lake: DeltaTable,
    steps: Sequence[Step],
    evolution: Evolution,
    app: str,
    metadata: Mapping[str, Any],
    scratch: Path,
) -> frozenset[DeltaFeature]:
    """Apply the steps in one commit with the last one's number; returns the features enabled for it.

    A change of metadata only, unless ``__rescued`` of some row has a text by a name that is removed: those rows must be
    written, by Arrow as long as the table has no feature. ``scratch`` is a folder for constants that Spark reads. Does
    nothing if the steps were applied already.
    """
    schema = project_schema(lake.schema, steps)
    moved = moved_names(lake.schema, steps)
    is_metadata = evolution.method is EvolutionMethod.METADATA and not _has_texts(spark, lake, moved)
    if evolution.method is EvolutionMethod.METADATA and not is_metadata and not features_on(lake):
        failpoints.hit(failpoints.DURING_EVOLUTION)
        evolve(lake, steps, app, metadata)
        return frozenset()
    enables = evolution.enables if is_metadata else lacking_for_names(lake, schema)
    enable(spark, lake.path, enables)
    if DeltaFeature.CLUSTERING in features_on(lake):
        forget_lost(spark, lake.path, schema.names)
    failpoints.hit(failpoints.DURING_EVOLUTION)
    with transaction(spark, lake.path) as begun:
        if (begun.position(app) or 0) >= steps[-1].number:
            return enables
        if is_metadata:
            begun.set_fields(_evolved_fields(begun.fields, lake.schema, steps, schema))
            begun.commit({app: steps[-1].number}, metadata)
        else:
            with tempfile.TemporaryDirectory(prefix="constants-", dir=scratch) as folder:
                rows = begun.content
                for number, step in enumerate(steps):
                    rows = _projected(begun.session, rows, step, f"{folder}/{number}.parquet")
                begun.replace(as_declared(rows, schema), fields_of(schema))
                begun.commit({app: steps[-1].number}, metadata)
    return enables


def adopt_by_spark(
    spark: SparkSession, lake: DeltaTable, schema: pa.Schema, txns: Mapping[str, int], metadata: Mapping[str, Any]
) -> frozenset[DeltaFeature]:
    """Add the missing columns of ``schema`` to the table, all null, and set positions, in one commit.

    Returns the feature that Spark needs for their names, if it was enabled for them.
    """
    enables = lacking_for_names(lake, schema)
    enable(spark, lake.path, enables)
    with transaction(spark, lake.path) as begun:
        known = {field["name"].lower() for field in begun.fields}
        missing = [field for field in fields_of(schema) if field["name"].lower() not in known]
        if missing:
            begun.set_fields([*begun.fields, *missing])
        begun.commit(txns, metadata)
    return enables


def replace_by_spark(
    spark: SparkSession,
    lake: DeltaTable,
    files: Sequence[str],
    schema: pa.Schema,
    txns: Mapping[str, int],
    metadata: Mapping[str, Any],
) -> int:
    """Make the rows of Parquet files the table's entire content, under ``schema``; returns the commit's version."""
    enable(spark, lake.path, lacking_for_names(lake, schema))
    if DeltaFeature.CLUSTERING in features_on(lake):
        forget_lost(spark, lake.path, schema.names)
    with transaction(spark, lake.path) as begun:
        rows = parquet_files(begun.session, *files) if files else None
        begun.replace(None if rows is None else as_declared(rows, schema), fields_of(schema))
        return begun.commit(txns, metadata)


def fields_of(schema: pa.Schema) -> Fields:
    """Return the schema's fields as in Delta's log for a table without column mapping."""
    found: Fields = json.loads(schema_json(schema))["fields"]
    return found


def _evolved_fields(before: Fields, lake: pa.Schema, steps: Sequence[Step], schema: pa.Schema) -> Fields:
    """Return the fields after the steps; existing ones keep everything in the log but their name and type."""
    own = {each.name for each in own_columns(lake)}
    known = {field["name"]: field for field in before}
    wanted = {field["name"]: field for field in fields_of(schema)}
    types = {each.name: each.type for each in lake}
    out = []
    for each in traced([name for name in lake.names if name not in own], steps):
        field = wanted[each.name]
        if each.source is not None:
            same = each.type.equals(types[each.source])
            kept = known[each.source]
            field = {**kept, "name": each.name, "type": kept["type"] if same else field["type"]}
        out.append(field)
    return [*out, *[known[name] for name in lake.names if name in own]]


def _has_texts(spark: SparkSession, lake: DeltaTable, names: frozenset[str]) -> bool:
    """Whether some row's ``__rescued`` has a text of one of these columns."""
    if not names or RESCUED not in lake.schema.names:
        return False
    rows = spark.newSession().read.format("delta").load(lake.path).filter(F.col(RESCUED).isNotNull())
    known = F.array(*[F.lit(name) for name in sorted(names)])
    return bool(rows.filter(F.arrays_overlap(F.map_keys(RESCUED), known)).limit(1).count())


def _projected(session: SparkSession, rows: DataFrame, step: Step, path: str) -> DataFrame:
    """``project.project_rows`` for Spark. ``path`` is for a file with the step's constants."""
    present = set(rows.columns)
    constants = {
        helper(f"__constant_{number}"): each.value
        for number, each in enumerate(step.columns)
        if each.source not in present and each.value is not None and each.value.is_valid
    }
    if constants:
        pq.write_table(pa.table({name: pa.array([v.as_py()], v.type) for name, v in constants.items()}), path)
        rows = rows.crossJoin(F.broadcast(parquet_files(session, path)))
    out = []
    for number, each in enumerate(step.columns):
        if each.source is not None and each.source in present:
            value = F.col(quoted(each.source))
        else:
            constant = helper(f"__constant_{number}")
            value = F.col(constant) if constant in constants else F.lit(None)
        out.append(value.cast(spark_type(each.type)).alias(each.name))
    if RESCUED in present:
        out.append(_moved_texts(step, present).alias(RESCUED))
    own = [each.name for each in own_columns(pa.schema([pa.field(name, pa.null()) for name in rows.columns]))]
    return rows.select(*out, *[F.col(name) for name in own if name != RESCUED])


def _moved_texts(step: Step, present: set[str]) -> Column:
    """Rename the columns in ``__rescued``, and add the texts of constants that no type of the lake can represent."""
    names = {each.source: each.name for each in step.columns if each.source is not None and each.source in present}
    texts = {each.name: each.text for each in step.columns if each.source not in present and each.text is not None}
    none = F.create_map().cast(TEXTS)
    renames = F.create_map(*[F.lit(text) for pair in names.items() for text in pair]) if names else none
    kept = F.map_filter(F.coalesce(F.col(RESCUED), none), lambda name, _: F.map_contains_key(renames, name))
    moved = F.transform_keys(kept, lambda name, _: F.element_at(renames, name))
    added = F.create_map(*[F.lit(text) for pair in texts.items() for text in pair]) if texts else none
    joined = F.map_concat(moved.cast(TEXTS), added.cast(TEXTS))
    return F.when(F.size(joined) > 0, joined)


def as_declared(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    """Return the schema's columns in its order and types."""
    have = set(rows.columns)
    return rows.select(
        *[
            (F.col(quoted(each.name)) if each.name in have else F.lit(None))
            .cast(spark_type(each.type))
            .alias(each.name)
            for each in schema
        ]
    )


def spark_type(kind: pa.DataType) -> T.DataType:
    """Return the Spark type of a type of the lake."""
    fields = fields_of(pa.schema([pa.field("x", kind)]))
    return T.StructType.fromJson({"type": "struct", "fields": fields}).fields[0].dataType

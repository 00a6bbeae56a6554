"""Tables, types and names: the vocabulary of the source, which every other package uses.

Tables     ``TableId``, ``TableSchema``, ``Column`` and ``Key`` (the texts of a key's values); ``column_from_plain``
           reads a stored column. ``PgType``, ``TypeKind``, ``MONEY`` and ``base_type`` are types. ``Relation``,
           ``RelationColumn`` and ``ReplicaIdentity`` are what a stream announces. ``named_remedy`` and
           ``identity_remedy`` are texts of errors about the key that identifies rows. ``streamed``, ``is_streamed``
           and ``keeps_key`` say which columns the stream sends.
Changes    ``Fingerprint`` is what the catalogue says of a table, of ``ColumnMark``, ``KeyMark``, ``TypeMark``,
           ``StorageMark``, ``PublicationMark`` and ``PublicationEntry``. ``decide`` returns the ``Decision`` that
           follows from a change under a ``Policy`` (``Verdict``, ``PauseCause``, ``SchemaChanges``,
           ``DroppedColumns``, ``READ_AGAIN_THEN``); ``project`` returns how older rows become rows of the new version
           (``Projected``). ``same_layout`` and ``same_columns`` compare two versions. ``LakeFeatures`` and
           ``DeltaFeature`` are features that a change may need.
Names      ``SchemaOptions``, ``KeyRule`` and ``NameAdjustmentMode`` are settings; ``Names``, ``adjust_field_name`` and
           ``adjust_schema_name`` make names of topics and schemas, ``name_clash`` finds columns that the lake cannot
           distinguish (``NameClash``). ``ConnectSchema`` is Kafka Connect's schema of a record.

Everything is a value or a pure function, and loads no server, lake or session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.schema.alignment import base_type as base_type
    from cdc_core.schema.changes import READ_AGAIN_THEN as READ_AGAIN_THEN
    from cdc_core.schema.changes import Decision as Decision
    from cdc_core.schema.changes import DeltaFeature as DeltaFeature
    from cdc_core.schema.changes import DroppedColumns as DroppedColumns
    from cdc_core.schema.changes import LakeFeatures as LakeFeatures
    from cdc_core.schema.changes import PauseCause as PauseCause
    from cdc_core.schema.changes import Policy as Policy
    from cdc_core.schema.changes import Projected as Projected
    from cdc_core.schema.changes import SchemaChanges as SchemaChanges
    from cdc_core.schema.changes import Verdict as Verdict
    from cdc_core.schema.changes import project as project
    from cdc_core.schema.connect import ConnectSchema as ConnectSchema
    from cdc_core.schema.evolution import decide as decide
    from cdc_core.schema.fingerprint import ColumnMark as ColumnMark
    from cdc_core.schema.fingerprint import Fingerprint as Fingerprint
    from cdc_core.schema.fingerprint import KeyMark as KeyMark
    from cdc_core.schema.fingerprint import PublicationEntry as PublicationEntry
    from cdc_core.schema.fingerprint import PublicationMark as PublicationMark
    from cdc_core.schema.fingerprint import StorageMark as StorageMark
    from cdc_core.schema.fingerprint import TypeMark as TypeMark
    from cdc_core.schema.naming import Names as Names
    from cdc_core.schema.naming import adjust_field_name as adjust_field_name
    from cdc_core.schema.naming import adjust_schema_name as adjust_schema_name
    from cdc_core.schema.options import KeyRule as KeyRule
    from cdc_core.schema.options import NameAdjustmentMode as NameAdjustmentMode
    from cdc_core.schema.options import SchemaOptions as SchemaOptions
    from cdc_core.schema.pg_type import MONEY as MONEY
    from cdc_core.schema.pg_type import PgType as PgType
    from cdc_core.schema.pg_type import TypeKind as TypeKind
    from cdc_core.schema.plan import NameClash as NameClash
    from cdc_core.schema.plan import name_clash as name_clash
    from cdc_core.schema.plan import same_columns as same_columns
    from cdc_core.schema.plan import same_layout as same_layout
    from cdc_core.schema.relation import Relation as Relation
    from cdc_core.schema.relation import RelationColumn as RelationColumn
    from cdc_core.schema.relation import ReplicaIdentity as ReplicaIdentity
    from cdc_core.schema.table import Column as Column
    from cdc_core.schema.table import Key as Key
    from cdc_core.schema.table import TableId as TableId
    from cdc_core.schema.table import TableSchema as TableSchema
    from cdc_core.schema.table import column_from_plain as column_from_plain
    from cdc_core.schema.table import identity_remedy as identity_remedy
    from cdc_core.schema.table import named_remedy as named_remedy
    from cdc_core.schema.unseen import is_streamed as is_streamed
    from cdc_core.schema.unseen import keeps_key as keeps_key
    from cdc_core.schema.unseen import streamed as streamed

lazily(
    __name__,
    {
        "Column": "table",
        "ColumnMark": "fingerprint",
        "ConnectSchema": "connect",
        "Decision": "changes",
        "DeltaFeature": "changes",
        "DroppedColumns": "changes",
        "Fingerprint": "fingerprint",
        "Key": "table",
        "KeyMark": "fingerprint",
        "KeyRule": "options",
        "LakeFeatures": "changes",
        "MONEY": "pg_type",
        "NameAdjustmentMode": "options",
        "NameClash": "plan",
        "Names": "naming",
        "PauseCause": "changes",
        "PgType": "pg_type",
        "Policy": "changes",
        "Projected": "changes",
        "PublicationEntry": "fingerprint",
        "PublicationMark": "fingerprint",
        "READ_AGAIN_THEN": "changes",
        "Relation": "relation",
        "RelationColumn": "relation",
        "ReplicaIdentity": "relation",
        "SchemaChanges": "changes",
        "SchemaOptions": "options",
        "StorageMark": "fingerprint",
        "TableId": "table",
        "TableSchema": "table",
        "TypeKind": "pg_type",
        "TypeMark": "fingerprint",
        "Verdict": "changes",
        "adjust_field_name": "naming",
        "adjust_schema_name": "naming",
        "base_type": "alignment",
        "column_from_plain": "table",
        "decide": "evolution",
        "identity_remedy": "table",
        "is_streamed": "unseen",
        "keeps_key": "unseen",
        "name_clash": "plan",
        "named_remedy": "table",
        "project": "changes",
        "same_columns": "plan",
        "same_layout": "plan",
        "streamed": "unseen",
    },
)

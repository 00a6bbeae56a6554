"""The plug-in's message, by the numbers and types of its fields.

    RowMessage    1 transaction_id uint32, 2 commit_time uint64 (µs since 1970), 3 table string (quoted schema.table),
                  4 op, 5 new_tuple and 6 old_tuple repeated DatumMessage, 7 new_typeinfo repeated TypeInfo
    DatumMessage  1 column_name string (quoted), 2 column_type int64 (oid), and at most one of
                  3 int32, 4 int64, 5 float, 6 double, 7 bool, 8 string, 9 bytes, 10 Point, 11 missing (bool)
    TypeInfo      1 modifier string (type with its modifier), 2 value_optional bool
    Point         1 x, 2 y double
    op            0 INSERT, 1 UPDATE, 2 DELETE, 3 BEGIN, 4 COMMIT, -1 UNKNOWN

A datum with none of the fields 3 to 11 is SQL NULL.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INSERT, UPDATE, DELETE, BEGIN, COMMIT = range(5)

_Field = descriptor_pb2.FieldDescriptorProto
_ONE, _MANY, _NEEDED = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED, _Field.LABEL_REQUIRED


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="decoderbufs.proto", package="decoderbufs", syntax="proto2")
    kinds = file.enum_type.add(name="Op")
    for name, number in (("UNKNOWN", -1), ("INSERT", 0), ("UPDATE", 1), ("DELETE", 2), ("BEGIN", 3), ("COMMIT", 4)):
        kinds.value.add(name=name, number=number)
    point = file.message_type.add(name="Point")
    for name, number in (("x", 1), ("y", 2)):
        point.field.add(name=name, number=number, type=_Field.TYPE_DOUBLE, label=_NEEDED)
    datum = file.message_type.add(name="DatumMessage")
    datum.field.add(name="column_name", number=1, type=_Field.TYPE_STRING, label=_ONE)
    datum.field.add(name="column_type", number=2, type=_Field.TYPE_INT64, label=_ONE)
    datum.oneof_decl.add(name="datum")
    for number, (name, kind) in enumerate(
        (
            ("int32", _Field.TYPE_INT32),
            ("int64", _Field.TYPE_INT64),
            ("float", _Field.TYPE_FLOAT),
            ("double", _Field.TYPE_DOUBLE),
            ("bool", _Field.TYPE_BOOL),
            ("string", _Field.TYPE_STRING),
            ("bytes", _Field.TYPE_BYTES),
            ("point", _Field.TYPE_MESSAGE),
            ("missing", _Field.TYPE_BOOL),
        ),
        start=3,
    ):
        field = datum.field.add(name=f"datum_{name}", number=number, type=kind, label=_ONE, oneof_index=0)
        if kind == _Field.TYPE_MESSAGE:
            field.type_name = ".decoderbufs.Point"
    info = file.message_type.add(name="TypeInfo")
    info.field.add(name="modifier", number=1, type=_Field.TYPE_STRING, label=_NEEDED)
    info.field.add(name="value_optional", number=2, type=_Field.TYPE_BOOL, label=_NEEDED)
    row = file.message_type.add(name="RowMessage")
    row.field.add(name="transaction_id", number=1, type=_Field.TYPE_UINT32, label=_ONE)
    row.field.add(name="commit_time", number=2, type=_Field.TYPE_UINT64, label=_ONE)
    row.field.add(name="table", number=3, type=_Field.TYPE_STRING, label=_ONE)
    row.field.add(name="op", number=4, type=_Field.TYPE_ENUM, type_name=".decoderbufs.Op", label=_ONE)
    for number, (name, kind_name) in enumerate(
        (("new_tuple", "DatumMessage"), ("old_tuple", "DatumMessage"), ("new_typeinfo", "TypeInfo")), start=5
    ):
        row.field.add(
            name=name, number=number, type=_Field.TYPE_MESSAGE, type_name=f".decoderbufs.{kind_name}", label=_MANY
        )
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_described())
RowMessage: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("decoderbufs.RowMessage"))

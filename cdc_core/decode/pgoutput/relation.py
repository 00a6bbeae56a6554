"""Parses the Relation message, one at a time: it is rare."""

from __future__ import annotations

import struct

from cdc_core.decode.pgoutput.cursor import Cursor
from cdc_core.errors import ProtocolError
from cdc_core.schema import Relation, RelationColumn, ReplicaIdentity

_IDENTITIES = {ord(member.value): member for member in ReplicaIdentity}
_KEY_FLAG = 1


def parse_relation(payload: bytes | memoryview, lsn: int | None = None) -> Relation:
    """Parse a Relation message, from its kind byte on.

    An empty namespace means pg_catalog. Raises ProtocolError for anything but exactly one complete message. Source:
    PostgreSQL manual §55.9.
    """
    cursor = Cursor(payload, lsn, "a Relation message")
    if cursor.byte() != ord("R"):
        raise ProtocolError("", lsn, "a Relation message", "a message of another kind")
    oid = cursor.u32()
    namespace = cursor.text() or "pg_catalog"
    name = cursor.text()
    cursor.relation = f"{namespace}.{name}"
    identity = _IDENTITIES.get(cursor.byte())
    if identity is None:
        raise ProtocolError(cursor.relation, lsn, "a replica identity of d, n, f or i", "another")
    columns = tuple(_column(cursor) for _ in range(cursor.u16()))
    cursor.end()
    return Relation(oid, namespace, name, identity, columns)


def relation_message(relation: Relation) -> bytes:
    """The inverse of ``parse_relation``: the form of a relation in the metadata of a spool file."""
    out = [b"R", struct.pack("!I", relation.oid), relation.namespace.encode(), b"\0", relation.name.encode(), b"\0"]
    out.append(relation.identity.value.encode() + struct.pack("!H", len(relation.columns)))
    for column in relation.columns:
        flags = _KEY_FLAG if column.is_identity else 0
        out.append(bytes([flags]) + column.name.encode() + b"\0")
        out.append(struct.pack("!Ii", column.type_oid, column.type_modifier))
    return b"".join(out)


def _column(cursor: Cursor) -> RelationColumn:
    flags = cursor.byte()
    name = cursor.text()
    return RelationColumn(name, cursor.u32(), cursor.i32(), bool(flags & _KEY_FLAG))

"""The Relation message, by which pgoutput announces a table, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReplicaIdentity(StrEnum):
    """How the source identifies the old row of an update or delete (pg_class.relreplident)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a Relation message. ``is_identity`` is bit 0 of its flags: part of the replica identity."""

    name: str
    type_oid: int
    type_modifier: int
    is_identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message: the format of the tuples that follow it. Source: PostgreSQL manual §55.9."""

    oid: int
    namespace: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

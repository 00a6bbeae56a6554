"""One line of the registry: which types a family claims, and how it builds their codec.

A family file ends in ``RULES``, a tuple of these. ``registry.py`` lists the families by hand, in order; the first rule
that claims a type builds its codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions

# Finds another column's codec: how a domain reaches its base and an array its element without importing the registry.
Resolve = Callable[[Column, TypeOptions], ColumnCodec]
Build = Callable[[Column, TypeOptions, Resolve], ColumnCodec]

CATALOG = "pg_catalog"


@dataclass(frozen=True, slots=True)
class TypeRule:
    """Claims types by kind, name and namespace.

    ``names`` are the pg_type.typname it claims; empty claims every name of ``kind``. ``kind`` None claims every kind.
    ``namespace`` is the schema the type must live in; None (extension types, user types) accepts any. ``label`` is how
    documents and tests call the rule: the family's name.
    """

    label: str
    build: Build
    names: tuple[str, ...] = ()
    kind: TypeKind | None = TypeKind.BASE
    namespace: str | None = None

    def claims(self, pg_type: PgType) -> bool:
        """Whether this rule builds the codec of that type."""
        if self.kind is not None and pg_type.kind is not self.kind:
            return False
        if self.names and pg_type.name not in self.names:
            return False
        return self.namespace is None or pg_type.namespace == self.namespace


def misfits(pattern: str) -> Callable[[pa.Array], pa.BooleanArray]:
    """``NaturalConverter.is_misfit`` of a type whose values are told by their look: ``pattern`` is anchored here."""
    return lambda text: pc.fill_null(pc.match_substring_regex(text, f"^(?:{pattern})$"), False)


def builtin(label: str, build: Build, *names: str) -> TypeRule:
    """A rule for base types of pg_catalog."""
    return TypeRule(label, build, names, TypeKind.BASE, CATALOG)


def extension(label: str, build: Build, *names: str) -> TypeRule:
    """A rule for base types that an extension brings, in whatever schema it was installed."""
    return TypeRule(label, build, names, TypeKind.BASE)


def of_kind(label: str, build: Build, kind: TypeKind) -> TypeRule:
    """A rule for every type of a kind (enums, domains, arrays, composites)."""
    return TypeRule(label, build, (), kind)

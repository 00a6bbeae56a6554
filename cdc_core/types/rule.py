"""One entry of the registry: the types of a family, and how it builds their codec.

A family file ends in ``RULES``, a tuple of these. ``registry.py`` lists the families explicitly, in order; the first
rule that matches a type builds its codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Column, PgType, TypeKind
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions

# Returns another column's codec: for a domain's base and an array's element, without importing the registry.
Resolve = Callable[[Column, TypeOptions], ColumnCodec]
Build = Callable[[Column, TypeOptions, Resolve], ColumnCodec]

CATALOG = "pg_catalog"


@dataclass(frozen=True, slots=True)
class TypeRule:
    """Matches types by kind, name and namespace.

    ``names`` are the values of pg_type.typname it matches; empty matches every name of ``kind``. ``kind`` None matches
    every kind. ``namespace`` is the required schema of the type; None (extension types, user types) matches any.
    ``label`` is the rule's name in documents and tests: the family's name.
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
    """Return ``NaturalConverter.is_misfit`` for a type whose values match ``pattern``, which is anchored here."""
    return lambda text: pc.fill_null(pc.match_substring_regex(text, f"^(?:{pattern})$"), False)


def builtin(label: str, build: Build, *names: str) -> TypeRule:
    """A rule for base types of pg_catalog."""
    return TypeRule(label, build, names, TypeKind.BASE, CATALOG)


def extension(label: str, build: Build, *names: str) -> TypeRule:
    """A rule for base types of an extension, installed in any schema."""
    return TypeRule(label, build, names, TypeKind.BASE)


def of_kind(label: str, build: Build, kind: TypeKind) -> TypeRule:
    """A rule for every type of a kind (enums, domains, arrays, composites)."""
    return TypeRule(label, build, (), kind)

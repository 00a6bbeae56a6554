"""A PostgreSQL type as described by the catalogue, resolved as far as its values require."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MONEY = 790
"""The oid of money, equal in every version."""


class TypeKind(StrEnum):
    """pg_type.typtype, with arrays (typcategory 'A' with an element) distinguished from their base types."""

    BASE = "b"
    ARRAY = "a"
    COMPOSITE = "c"
    DOMAIN = "d"
    ENUM = "e"
    PSEUDO = "p"
    RANGE = "r"
    MULTIRANGE = "m"


@dataclass(frozen=True, slots=True)
class PgType:
    """One type.

    ``name`` is pg_type.typname (``int4``, ``_int4``, ``mood``), ``namespace`` its schema. ``inner`` is the element of
    an array, the base of a domain, the subtype of a range or multirange, else None. ``inner_modifier`` is the modifier
    of a domain's base (pg_type.typtypmod), -1 for none. ``labels`` are an enum's, in sort order. ``scale`` is the
    number of decimals of money, by the database's lc_monetary, also of a composite with money; None for other types.
    ``shows_names``: the text of a value contains names of objects (regclass, aclitem; arrays, domains, ranges and
    composites of them), so one value has several texts. ``delimiter`` separates the type's values in the text of an
    array of them (pg_type.typdelim).
    """

    oid: int
    name: str
    namespace: str = "pg_catalog"
    kind: TypeKind = TypeKind.BASE
    inner: PgType | None = None
    inner_modifier: int = -1
    labels: tuple[str, ...] = ()
    scale: int | None = None
    shows_names: bool = False
    delimiter: str = ","

    @property
    def money_scale(self) -> int | None:
        """The decimals of money in the type's values, None if they contain none that is known."""
        return self.scale if self.inner is None else self.inner.money_scale

    @property
    def operators(self) -> str:
        """The schema of the operators by which values are compared: an extension has them beside its type."""
        if self.kind is TypeKind.DOMAIN and self.inner is not None:
            return self.inner.operators
        return self.namespace if self.kind is TypeKind.BASE and self.namespace else "pg_catalog"

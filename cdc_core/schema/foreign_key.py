"""A foreign key of the source: which columns of a table name a row of which other table, or of the same one."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The constraint ``name`` of ``table``: ``columns`` refer to ``parent_columns`` of ``parent``, in one order.

    ``is_exact`` is False where a column has a collation under which different texts are equal.
    """

    name: str
    table: TableId
    columns: tuple[str, ...]
    parent: TableId
    parent_columns: tuple[str, ...]
    is_exact: bool = True

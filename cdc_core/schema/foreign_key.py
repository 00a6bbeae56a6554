"""A foreign key of the source: columns of a table that refer to a row of another table, or of the same one."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The constraint ``name`` of ``table``: ``columns`` refer to ``parent_columns`` of ``parent``, in the same order.

    ``is_exact`` is False if a column has a collation under which different texts are equal.
    """

    name: str
    table: TableId
    columns: tuple[str, ...]
    parent: TableId
    parent_columns: tuple[str, ...]
    is_exact: bool = True

"""Selection of captured tables, columns, operations and messages; masks, truncation, hashes.

``SelectionOptions`` are the settings, with ``OPERATIONS``, ``ROW_OPERATIONS`` and ``DIGESTS``. ``TableSelection`` and
``table_matcher`` choose tables, ``chosen_tables`` those that a user names, ``MessageSelection`` messages.
``plan_columns`` returns a ``ColumnPlan`` for each column: ``EXCLUDED``, ``SKIPPED``, or with a mapper such as
``TruncateMapper``; ``source_type`` is the name by which an option selects a type. ``key_columns`` are the key of
events, ``lake_key_conflicts`` says which columns of the lake's key would be lost. ``Pattern``, ``compile_pattern``,
``matches_table`` and ``replacing`` are Java's regular expressions. ``NumberByTable`` is a number that differs by table.

All are pure functions of options and names; an expression that is not valid raises ConfigError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.selection.by_table import NumberByTable as NumberByTable
    from cdc_core.selection.by_table import matches_table as matches_table
    from cdc_core.selection.chosen import chosen_tables as chosen_tables
    from cdc_core.selection.columns import EXCLUDED as EXCLUDED
    from cdc_core.selection.columns import SKIPPED as SKIPPED
    from cdc_core.selection.columns import ColumnPlan as ColumnPlan
    from cdc_core.selection.columns import lake_key_conflicts as lake_key_conflicts
    from cdc_core.selection.columns import plan_columns as plan_columns
    from cdc_core.selection.digests import DIGESTS as DIGESTS
    from cdc_core.selection.event_key import key_columns as key_columns
    from cdc_core.selection.java_replacement import replacing as replacing
    from cdc_core.selection.mappers import TruncateMapper as TruncateMapper
    from cdc_core.selection.messages import MessageSelection as MessageSelection
    from cdc_core.selection.options import OPERATIONS as OPERATIONS
    from cdc_core.selection.options import ROW_OPERATIONS as ROW_OPERATIONS
    from cdc_core.selection.options import SelectionOptions as SelectionOptions
    from cdc_core.selection.patterns import Pattern as Pattern
    from cdc_core.selection.patterns import compile_pattern as compile_pattern
    from cdc_core.selection.source_types import source_type as source_type
    from cdc_core.selection.tables import TableSelection as TableSelection
    from cdc_core.selection.tables import table_matcher as table_matcher

lazily(
    __name__,
    {
        "ColumnPlan": "columns",
        "DIGESTS": "digests",
        "EXCLUDED": "columns",
        "MessageSelection": "messages",
        "NumberByTable": "by_table",
        "OPERATIONS": "options",
        "Pattern": "patterns",
        "ROW_OPERATIONS": "options",
        "SKIPPED": "columns",
        "SelectionOptions": "options",
        "TableSelection": "tables",
        "TruncateMapper": "mappers",
        "chosen_tables": "chosen",
        "compile_pattern": "patterns",
        "key_columns": "event_key",
        "lake_key_conflicts": "columns",
        "matches_table": "by_table",
        "plan_columns": "columns",
        "replacing": "java_replacement",
        "source_type": "source_types",
        "table_matcher": "tables",
    },
)

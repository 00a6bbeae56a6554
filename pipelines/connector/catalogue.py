"""Cache of a connector's captured tables in a file, so that definitions load while the server is not available."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from cdc_core.private_files import create_private, private_folder
from cdc_core.schema import TableId, TableSchema
from wal2lake.pipelines.connector.site import KnownTable

FILE = "catalogue.json"

_PLAIN = re.compile(r"([\w $-]+)\\?\.([\w $-]+)")


def read(state_path: Path) -> tuple[KnownTable, ...]:
    """The tables of the cached catalogue; none if it cannot be read, since it is only a cache."""
    return read_file(state_path / FILE)


def read_file(file: Path) -> tuple[KnownTable, ...]:
    """``read`` from a file of any name."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["tables"]
        schemas = [TableSchema.from_plain(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple(KnownTable(schema.id, schema) for schema in sorted(schemas, key=lambda schema: schema.id))


def write(state_path: Path, tables: Iterable[TableSchema]) -> bool:
    """Replace the cached catalogue. Returns True if its tables or columns changed."""
    text = text_of(tables)
    file = state_path / FILE
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    private_folder(state_path)
    partial = file.with_suffix(f".{os.getpid()}")
    create_private(partial)
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)
    return True


def text_of(tables: Iterable[TableSchema]) -> str:
    """The catalogue's file: equal for equal tables."""
    entries = [json.loads(table.to_json()) for table in sorted(tables, key=lambda table: table.id)]
    return json.dumps({"tables": entries}, indent=1)


def from_include_list(entries: Iterable[str]) -> tuple[KnownTable, ...]:
    """The tables of ``table.include.list`` whose entries are plain names, not patterns."""
    matches = [match for entry in entries if (match := _PLAIN.fullmatch(entry.strip()))]
    return tuple(KnownTable(TableId(match[1], match[2])) for match in matches)

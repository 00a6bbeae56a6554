"""Names as parts of asset keys: readable, and different for different tables by construction."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zlib
from collections.abc import Iterable

from cdc_core.schema import TableId

_PLAIN = re.compile(r"[A-Za-z0-9_]+")


def part(name: str) -> str:
    """Return a name as part of an asset key.

    It is unchanged if Dagster allows it: letters without accents, digits, underscores. In other names accents are left
    out and other characters are underscores, and a number that depends on the name is appended: ``täb-le.x`` is
    ``tab_le_x_1f3a``. The number is longer where letters of other alphabets are left out.
    """
    if _PLAIN.fullmatch(name):
        return name
    bare = "".join(
        character for character in unicodedata.normalize("NFKD", name) if not unicodedata.combining(character)
    )
    if any(character.isalnum() and not character.isascii() for character in bare):
        return _long(name)
    return f"{_readable(bare)}_{zlib.crc32(name.encode()) & 0xFFFF:04x}"


def table_parts(tables: Iterable[TableId]) -> dict[TableId, tuple[str, str]]:
    """Return the parts for the schema and the name of each table.

    They are those of ``part``, unless another table has the same, or has them joined: Dagster names an asset's output
    after its key's parts, with two underscores between them. Then it is one with a long number that has another one,
    and of tables that need no number the later one.
    """
    parts: dict[TableId, tuple[str, str]] = {}
    taken = set[str]()
    for table in sorted(
        set(tables), key=lambda table_id: (_PLAIN.fullmatch(table_id.schema + table_id.table) is None, table_id)
    ):
        schema, name, tries = part(table.schema), part(table.table), 0
        while f"{schema}__{name}" in taken:
            tries += 1
            name = _long(table.table, f"{table.schema}.{table.table}" + "'" * tries)
        taken.add(f"{schema}__{name}")
        parts[table] = schema, name
    return parts


def _long(name: str, hashed: str = "") -> str:
    digest = hashlib.blake2b((hashed or name).encode(), digest_size=8).hexdigest()
    return f"{_readable(unicodedata.normalize('NFKD', name))}_{digest}"


def _readable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")

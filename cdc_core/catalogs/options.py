"""Options of catalogs."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.option import Secret, option, parse_list

CATALOGS = ("glue", "unity")
_PLACEHOLDER = re.compile(r"\{(connector|schema|table)\}")


def parse_catalogs(text: str) -> tuple[str, ...]:
    """Parse names of catalogs, separated by commas."""
    names = parse_list(text)
    if not set(names) <= set(CATALOGS):
        raise ValueError(f"names of {', '.join(CATALOGS)}, separated by commas")
    return tuple(dict.fromkeys(names))


parse_catalogs.kind = "list"  # type: ignore[attr-defined]


def parse_name(text: str) -> str:
    """Parse a name with the placeholders ``{connector}``, ``{schema}`` and ``{table}``."""
    name = text.strip()
    rest = _PLACEHOLDER.sub("", name)
    if not name or "{" in rest or "}" in rest or "." in rest:
        raise ValueError("a name without dots, which may contain {connector}, {schema} and {table}")
    return name


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """Options of the catalogs in which lake tables are registered."""

    catalogs: tuple[str, ...] = option(
        "wal2lake.catalogs",
        (),
        "Catalogs in which runs register lake tables, without Spark: glue (AWS Glue; it needs the extra glue) and "
        "unity (Unity Catalog) (docs/catalogs.md). Empty for none.",
        parse=parse_catalogs,
    )
    catalogs_database: str = option(
        "wal2lake.catalogs.database",
        "{connector}",
        "Name of the database (Unity Catalog: the schema) of each lake table, with {connector} (topic.prefix), "
        "{schema} and {table}. It is made if it does not exist.",
        parse=parse_name,
    )
    catalogs_table: str = option(
        "wal2lake.catalogs.table",
        "{schema}_{table}",
        "Name of each lake table in its database, with {connector}, {schema} and {table}.",
        parse=parse_name,
    )
    catalogs_owner: str = option(
        "wal2lake.catalogs.owner",
        "",
        "Owner of the tables: Glue's owner of a table; in Unity Catalog the property owner, as its API sets none.",
    )
    catalogs_unity_url: str = option(
        "wal2lake.catalogs.unity.url",
        "",
        "Address of the server of Unity Catalog, such as https://unity.example.org.",
    )
    catalogs_unity_token: Secret = option(
        "wal2lake.catalogs.unity.token", Secret(), "Token for that server; empty for none.", secret=True
    )
    catalogs_unity_catalog: str = option(
        "wal2lake.catalogs.unity.catalog", "unity", "Catalog of that server, which must exist."
    )

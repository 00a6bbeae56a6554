"""Checks made before anything is created: the selected tables, the folders to be written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from cdc_core.config.connector import ConnectorConfig
from cdc_core.errors import LakeError, TableError
from cdc_core.lake.delete_modes import DeleteModes
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.schema.table import TableId, TableSchema


def chosen_tables(captured: list[TableSchema], wanted: Sequence[TableId]) -> list[TableSchema]:
    """The captured tables among ``wanted``. Raises TableError if one is not captured."""
    unknown = [str(name) for name in wanted if name not in {table.id for table in captured}]
    if unknown:
        raise TableError(
            f"Not a captured table: {', '.join(unknown)}.",
            "Check the name and the include and exclude lists in the connector file.",
            unknown[0],
        )
    return [table for table in captured if table.id in wanted]


def check_delete_mode(modes: DeleteModes, table: TableSchema) -> None:
    """Raise TableError if two delete modes are configured for a table."""
    found = modes.matching(table.id)
    if len(found) > 1:
        names = " and ".join(f"wal2lake.lake.delete.mode.{mode.value}" for mode in found)
        raise TableError(
            f"{table.id} matches {names}.", "Change the lists so that only one of them matches it.", str(table.id)
        )


def raise_bad(finding: Finding) -> None:
    """Raise LakeError for a failed check."""
    if not finding.ok:
        raise LakeError(finding.found, finding.remedy)


def lake_finding(config: ConnectorConfig) -> Finding:
    """Whether the lake has a path, and its folder can be written."""
    if not config.lake.lake_path:
        return bad("lake", "wal2lake.lake.path is missing.", "Set it to a folder or URI, or set wal2lake.sinks.")
    return folder_finding("lake", "wal2lake.lake.path", config.lake.lake_path)


def folder_finding(check: str, name: str, path: str) -> Finding:
    """Whether a local folder can be written or created, by trying; other file systems are not checked.

    Nothing is left of the trial. Permissions alone do not tell: /proc, for one, has them and refuses.
    """
    if "://" in path and not path.startswith("file://"):
        return good(check, f"{name} is {path}; write access is checked by its file system at the first write.")
    folder = Path(path.removeprefix("file://")).absolute()
    nearest = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    if not nearest.is_dir():
        return bad(check, f"{name} is {path}, and {nearest} is not a folder.", "Correct the path.")
    try:
        with tempfile.TemporaryDirectory(prefix=".wal2lake-", dir=nearest):
            pass
    except OSError as error:
        found = f"{name} is {path}, and {nearest} cannot be written: {error.strerror}."
        return bad(check, found, "Correct its permissions or the path.")
    return good(check, f"The folder {path} of {name} is writable.")

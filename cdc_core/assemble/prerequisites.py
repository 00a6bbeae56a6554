"""Checks made before anything is created: the selected tables, the folders to be written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cdc_core.errors import LakeError, TableError
from cdc_core.lake.delete_modes import DeleteModes
from cdc_core.postgres.preflight.finding import Finding
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


def folder_finding(check: str, name: str, path: str) -> Finding:
    """Whether a local folder can be written or created; other file systems are not checked."""
    import os

    from cdc_core.postgres.preflight.finding import bad, good

    if "://" in path and not path.startswith("file://"):
        return good(check, f"{name} is {path}; write access is checked by its file system at the first write.")
    folder = Path(path.removeprefix("file://")).absolute()
    nearest = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "is not a folder" if not nearest.is_dir() else "cannot be written"
        return bad(check, f"{name} is {path}, and {nearest} {what}.", "Correct its permissions or the path.")
    return good(check, f"The folder {path} of {name} is writable.")

"""What is looked at before anything is made: the tables asked for, the folders to write to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cdc_core.errors import LakeError, TableError
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.schema.table import TableId, TableSchema


def chosen_tables(captured: list[TableSchema], wanted: Sequence[TableId]) -> list[TableSchema]:
    """The captured tables among ``wanted``; TableError where one is not captured."""
    unknown = [str(name) for name in wanted if name not in {table.id for table in captured}]
    if unknown:
        raise TableError(
            f"{', '.join(unknown)}: not among the captured tables.",
            "Check the name, and the include and exclude lists of the connector file.",
            unknown[0],
        )
    return [table for table in captured if table.id in wanted]


def raise_bad(finding: Finding) -> None:
    """Raise LakeError for a finding that is not good."""
    if not finding.ok:
        raise LakeError(finding.found, finding.remedy)


def folder_finding(check: str, name: str, path: str) -> Finding:
    """Whether a local folder can be written or made; other file systems speak for themselves."""
    import os

    from cdc_core.postgres.preflight.finding import bad, good

    if "://" in path and not path.startswith("file://"):
        return good(check, f"{name} is {path}; its file system will say whether it can be written.")
    folder = Path(path.removeprefix("file://")).absolute()
    nearest = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "is not a folder" if not nearest.is_dir() else "cannot be written"
        return bad(check, f"{name} is {path}, and {nearest} {what}.", "Mend its permissions or the path.")
    return good(check, f"The folder {path} of {name} can be written.")

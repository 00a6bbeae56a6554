"""Writes a folder that Dagster can be started with: dagster.yaml, workspace.yaml, and a folder for connector files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cdc_core.errors import ConfigError
from cdc_core.extras import require

INSTANCE, WORKSPACE, CONNECTORS = "dagster.yaml", "workspace.yaml", "connectors"


def shipped(name: str) -> str:
    """Return the text of INSTANCE or WORKSPACE."""
    return files("cdc_core.dagster_home").joinpath(name).read_text(encoding="utf-8")


def write_home(folder: Path) -> list[Path]:
    """Write what is missing in ``folder`` and return the files that were written.

    Files that exist and are equal remain unchanged. Raises ConfigError, before anything is written, if one differs, if
    the folder cannot be written, or if the extra ``dagster`` is not installed.
    """
    require("dagster", "A Dagster instance")
    texts = {folder / name: shipped(name) for name in (INSTANCE, WORKSPACE)}
    try:
        missing = {file: text for file, text in texts.items() if not file.exists()}
        changed = [file for file, text in texts.items() if file not in missing and file.read_text("utf-8") != text]
        if changed:
            raise ConfigError(
                f"{changed[0]} exists and is not the file that this version of wal2lake writes.",
                "Name another folder, or move the file away and compare the two afterwards.",
            )
        (folder / CONNECTORS).mkdir(parents=True, exist_ok=True)
        for file, text in missing.items():
            file.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{folder} cannot be used: {reason}.", "Name a folder that you may write.") from None
    return list(missing)

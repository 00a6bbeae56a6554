"""What mkdocs calls when it builds the site (mkdocs.yml): the version at the foot, decisions left out of the search.

The site's environment has only mkdocs, so nothing of the project is imported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def on_config(config: Any) -> Any:
    """Show at the foot of each page which version it describes."""
    source = Path(config.config_file_path).parent / "cdc_core" / "version.py"
    [version] = _VERSION.findall(source.read_text(encoding="utf-8"))
    config.copyright = f"wal2lake {version}"
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave pages for contributors out of the search."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    return markdown

"""HTTP responses with files of a folder: the data docs, which are static pages."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

DATA_DOCS_PATH = "/data-docs/"
# The folder in a connector's state in which Dagster's runs build data docs.
DATA_DOCS_FOLDER = "data_docs"
_NONE_YET = (
    "No data docs have been built yet, or not under this name. They are built at the end of each run that validated "
    "changes, and show the latest one."
)


@dataclass(frozen=True, slots=True)
class Page:
    """A response: its status line, headers and content."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


def pages_folder(directory: Path) -> Path:
    """Return the folder of the data docs' pages in ``directory``."""
    return directory / "site"


def data_docs_url(host: str, port: int) -> str:
    """Return the URL of the data docs' first page for a run with metrics at this address; empty without an address."""
    name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}{DATA_DOCS_PATH}index.html" if port else ""


def static_page(folders: Iterable[Path], path: str) -> Page:
    """Return the file ``path`` (below ``/data-docs/``) of the first of ``folders`` that exists; 404 without one.

    Nothing outside of the folder is served, for any path or symbolic link.
    """
    root = next((folder.resolve() for folder in folders if folder.is_dir()), None)
    # WSGI passes the path's bytes decoded as Latin-1.
    name = unquote(path.encode("latin-1", "replace").decode("utf-8", "replace"))
    if not name.startswith(DATA_DOCS_PATH):
        return Page("301 Moved Permanently", [("Location", DATA_DOCS_PATH), ("Content-Length", "0")], b"")
    try:
        file = None if root is None else (root / name.removeprefix(DATA_DOCS_PATH)).resolve()
        if file is not None and file.is_dir():
            file = file / "index.html"
        if root is None or file is None or not file.is_relative_to(root):
            return _missing()
        body = file.read_bytes()
    except (
        OSError,
        ValueError,
    ):  # removed meanwhile (the folder is replaced as a whole), or not a file name
        return _missing()
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return _page("200 OK", f"{kind}{charset}", body)


def _missing() -> Page:
    return _page("404 Not Found", "text/plain; charset=utf-8", _NONE_YET.encode())


def _page(status: str, kind: str, body: bytes) -> Page:
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("X-Content-Type-Options", "nosniff")]
    return Page(status, headers, body)

"""Locales with the money, and the names, of real ones, compiled from the sources in Debian's package locales.

A server finds them by ``LOCPATH``, so nobody needs to be root to install them.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.waits import patient

_SOURCES = Path("/usr/share/i18n/locales")
# What takes most of the time is left as small as localedef allows.
_OTHERS = {
    "LC_CTYPE": "i18n_ctype", **dict.fromkeys(("LC_COLLATE", "LC_NUMERIC", "LC_TIME", "LC_MESSAGES"), "POSIX")
}  # fmt: skip


@contextmanager
def server_with_locales(flavour: str, *names: str, settings: dict[str, Any] | None = None) -> Iterator[Cluster]:
    """Start a server of its own that has the locale ``name.utf8`` for each."""
    folder = Path(tempfile.mkdtemp(prefix="w2l-locales-"))  # pytest's folders are closed to the server's account
    try:
        folder.chmod(0o755)
        for name in names:
            _compile(folder, name)
        cluster = Cluster.start(flavour, settings, environment={"LOCPATH": str(folder)})
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder)


def _compile(folder: Path, name: str) -> None:
    whole = (_SOURCES / name).read_text(encoding="utf-8")
    money = whole[whole.index("\nLC_MONETARY\n") : whole.index("END LC_MONETARY")]
    others = [f'{key}\ncopy "{source}"\nEND {key}\n' for key, source in _OTHERS.items()]
    source = folder / f"{name}.source"
    source.write_text("".join(["comment_char %\nescape_char /\n", *others, money, "END LC_MONETARY\n"]))
    # It ends with 1 for the categories that are missing.
    done = subprocess.run(
        ["localedef", "--no-archive", "-c", "-i", source, "-f", "UTF-8", folder / f"{name}.utf8"],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert (folder / f"{name}.utf8" / "LC_MONETARY").exists(), f"{name}: {done.returncode} {done.stderr}"

"""The registry of output plug-ins (``plugin``): one line a plug-in."""

from __future__ import annotations

from pathlib import Path

from cdc_core.decode.decoderbufs.translate import DecoderbufsTranslator
from cdc_core.decode.pgoutput.in_progress import MAX_BYTES, InProgressTranslator
from cdc_core.decode.plugin import NoTranslator, Relations, Translator
from cdc_core.decode.wal2json.translate import Wal2JsonTranslator

PGOUTPUT, DECODERBUFS, WAL2JSON = "pgoutput", "decoderbufs", "wal2json"


def translator(
    plugin: str,
    relations: Relations,
    folder: Path | None = None,
    *,
    before_commit: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Translator:
    """Return the translator of a plug-in, by its name on the server.

    ``folder``: where a large transaction is kept, None: the system's. ``before_commit``: pgoutput may send transactions
    in progress and prepared ones, of which at most ``max_bytes`` are kept.
    """
    if plugin == DECODERBUFS:
        return DecoderbufsTranslator(relations, folder)
    if plugin == WAL2JSON:
        return Wal2JsonTranslator(relations)
    return InProgressTranslator(folder, max_bytes=max_bytes) if before_commit else NoTranslator()

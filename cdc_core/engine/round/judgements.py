"""The judgements of a run, summed up by table, and Great Expectations' pages about them at its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from cdc_core.engine.reports import RoundReport
from cdc_core.quality import CheckReport, both
from cdc_core.schema import TableId

_log = logging.getLogger(__name__)


class Judgements:
    """Sums of a run. ``docs_path`` is the folder for data docs, empty for none; then nothing is kept."""

    def __init__(self, docs_path: str) -> None:
        self._docs_path = docs_path
        self._found: dict[TableId, CheckReport] = {}

    def add(self, report: RoundReport) -> None:
        """Add the judgements of a round."""
        for check in report.judgements if self._docs_path else ():
            self._found[check.table] = both(self._found.get(check.table), check)

    def close(self, places: Mapping[str, str]) -> None:
        """Build data docs; ``places``: quarantine tables by schema.table. Logs a warning on failure."""
        if not self._found:
            return
        from cdc_core.quality import write_data_docs  # loads the library, which takes seconds

        try:
            write_data_docs(Path(self._docs_path).resolve(), self._found.values(), places)
        except Exception as error:  # missing pages are not a reason to fail a successful run
            _log.warning("The data docs could not be written (%s).", type(error).__name__)

"""Validation of a run's checks by Great Expectations, concurrent with its rounds, and its data docs at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc_core.engine.reports import CheckReport
from cdc_core.quality.validator import SummaryValidator, write_docs

_SECONDS = 30.0


class Validations:
    """The validations of one run. ``docs_path`` is the folder for data docs, empty for none."""

    def __init__(self, docs_path: str) -> None:
        self._docs_path = docs_path
        self._validator = SummaryValidator()

    def with_verdict(self, check: CheckReport | None) -> CheckReport | None:
        """Submit a summary to the validator; returns the report with the latest validation result of the table."""
        if check is None or check.summary is None:
            return check
        name = str(check.table)
        self._validator.submit(name, check.rules, check.summary)
        if check.sample:
            self._validator.submit_sample(name, check.suites, check.sample)
            check = replace(check, sample=b"")
        failed, verdict = self._validator.sample_failure(name), self._validator.verdict(name)
        if failed is not None:
            return replace(check, suite_success=False, validation_json=failed.json)
        return check if verdict is None else replace(check, validation_json=verdict.shown.json)

    def close(self, places: Mapping[str, str]) -> None:
        """Wait a bounded time for validations and build data docs; ``places``: quarantine tables by schema.table."""
        self._validator.close(_SECONDS)
        if self._docs_path:
            write_docs(self._docs_path, places)

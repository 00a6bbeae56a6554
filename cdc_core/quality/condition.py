"""The expectation class of rules that are a condition in SQL.

Imports Great Expectations: only for ``great_expectations``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.validator.metric_configuration import MetricConfiguration

ROWS, UNEXPECTED = "table.row_count", "rows.condition.unexpected_count"


class ExpectRowsToSatisfyCondition(BatchExpectation):  # type: ignore[misc]
    """Expect change rows to satisfy a condition in DuckDB SQL, of those to which it applies.

    It fails if more than ``tolerated_rows`` rows are unexpected, and a larger share than ``mostly`` permits. DuckDB
    computes its metrics: no execution engine of the library does.
    """

    condition: str
    applies: str = "true"
    mostly: float = 1.0
    tolerated_rows: int = 0

    success_keys: ClassVar[tuple[str, ...]] = ("condition", "applies", "mostly", "tolerated_rows")

    def get_validation_dependencies(self, execution_engine: Any = None, runtime_configuration: Any = None) -> Any:
        """Return the metrics that are to be computed: the numbers of rows and of unexpected rows."""
        dependencies = super().get_validation_dependencies(execution_engine, runtime_configuration)
        for name in (ROWS, UNEXPECTED):
            domain = {"condition": self.condition, "applies": self.applies}
            dependencies.set_metric_configuration(name, MetricConfiguration(name, {}, domain))
        return dependencies

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        rows, unexpected = metrics[ROWS], metrics[UNEXPECTED]
        is_met = not unexpected or unexpected <= self.tolerated_rows or (rows - unexpected) / rows >= self.mostly
        return {"success": is_met, "result": {"element_count": rows, "unexpected_count": unexpected}}

"""Great Expectations: an expectation judges the metrics of a slice, or the slice's rows where it computes them itself.

``verdict`` gives an expectation metrics that DuckDB has computed; which ones it needs is determined once. ``evaluated``
has the library compute them from rows, with pandas. Both return what the library decides; its exceptions are raised as
they are. The library is imported on first use, because this takes seconds.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import InvariantError
from cdc_core.quality.report import Metrics
from cdc_core.quality.rules import GENERATED_KINDS, NOT_NULL, By, Rule, Severity

if TYPE_CHECKING:
    import pandas as pd

# An expectation takes some kilobytes. Tables that are alike share those without a column's name.
_KEPT = 4_096
# Of the numbers of rows, which repeat themselves where slices are small.
_KEPT_VERDICTS = 16_384
_BATCH = "slice"
_EXACT_FLOAT = 1 << 53


@dataclass(frozen=True, slots=True)
class ExpectationVerdict:
    """What an expectation decided. ``observed`` is the value that it judged, None for one on single rows.

    ``unexpected`` are the positions of the unexpected rows, None if it has none: int64[U].
    """

    success: bool
    observed: Any = None
    unexpected: np.ndarray | None = None


class _Expectation:
    """An expectation of the library whose metrics are determined once; this takes a millisecond, a verdict 50 µs.

    It stands in for the expectation in ``metrics_validate``, which asks for its dependencies and its configuration each
    time. So do the methods of generated rules; others may depend on their class.
    """

    def __init__(self, rule: Rule) -> None:
        self._made = made(rule.kind, rule.arguments, rule.severity, rule.description)
        self.configuration = self._made.configuration
        self._is_generated = rule.kind in GENERATED_KINDS
        self._format = "BASIC" if rule.measures else "BOOLEAN_ONLY"
        self._needed = self._made.get_validation_dependencies(None, {"result_format": self._format})
        configurations = self._needed.metric_configurations
        self._ids = {name: configuration.id for name, configuration in configurations.items()}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._made, name)
        if self._is_generated and getattr(attribute, "__self__", None) is self._made:
            return MethodType(attribute.__func__, self)
        return attribute

    def get_validation_dependencies(self, **_: Any) -> Any:
        """The error that the expectation raised when it was created."""
        return self._needed

    def judge(self, values: Callable[[str], Any]) -> ExpectationVerdict:
        """Return the library's verdict; ``values`` returns a metric by its name."""
        metrics = {id_: values(name) for name, id_ in self._ids.items()}
        validation = type(self._made).metrics_validate(self, metrics, {"result_format": self._format}, None)
        return ExpectationVerdict(bool(validation.success), validation.result.get("observed_value"))


def verdict(rule: Rule, metrics: Metrics) -> ExpectationVerdict:
    """Have the rule's expectation judge what was computed. Raises what the library raises."""
    if metrics.values or rule.kind not in GENERATED_KINDS:
        return _verdict(rule, metrics)
    return _verdict_on_counts(rule, metrics.rows, metrics.ignored, metrics.unexpected)


@lru_cache(_KEPT_VERDICTS)
def _verdict_on_counts(rule: Rule, rows: int, ignored: int, unexpected: int) -> ExpectationVerdict:
    return _verdict(rule, Metrics(rows, ignored, unexpected))


def _verdict(rule: Rule, metrics: Metrics) -> ExpectationVerdict:

    def value(name: str) -> Any:
        if name in metrics.values:
            return metrics.values[name]
        if name == "table.row_count":
            return metrics.rows
        if name == "column_values.nonnull.unexpected_count":
            return metrics.unexpected if rule.kind == NOT_NULL else metrics.ignored
        if name.endswith(".filtered_row_count"):
            return metrics.rows - metrics.ignored
        if name.endswith(".unexpected_count"):
            return metrics.unexpected
        raise InvariantError(f"{rule.kind} needs {name}, which is not computed.")

    return _expectation(rule).judge(value)


@lru_cache(_KEPT)
def _expectation(rule: Rule) -> _Expectation:
    return _Expectation(rule)


def evaluated(rule: Rule, rows: pa.Table) -> ExpectationVerdict:
    """Have the library evaluate the rule's expectation on rows, with pandas, in 5 ms and more.

    Raises what the library raises.
    """
    library()
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.validator.metrics_calculator import MetricsCalculator

    expectation = made(rule.kind, rule.arguments, rule.severity, rule.description)
    engine = PandasExecutionEngine(batch_data_dict={_BATCH: frame(rows)})
    settings = {"result_format": {"result_format": "COMPLETE"}, "catch_exceptions": False}
    needed = expectation.get_validation_dependencies(engine, dict(settings)).get_metric_configurations()
    metrics, failed = MetricsCalculator(engine, show_progress_bars=False).compute_metrics(
        needed, {"catch_exceptions": False}
    )
    if failed:
        raise InvariantError("Great Expectations left metrics out.")
    validation = expectation.metrics_validate(metrics, settings, engine)
    places = validation.result.get("unexpected_index_list")
    if "element_count" not in validation.result:
        return ExpectationVerdict(bool(validation.success), validation.result.get("observed_value"))
    return ExpectationVerdict(bool(validation.success), None, np.array(places or [], dtype=np.int64))


def frame(rows: pa.Table) -> pd.DataFrame:
    """Convert rows to pandas, without rounding: whole numbers with nulls are floats only if these hold all of them."""
    import pandas as pd

    columns = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        is_large = pa.types.is_integer(column.type) and column.null_count and _is_large(column)
        columns[name] = column.to_pandas(integer_object_nulls=bool(is_large))
    return pd.DataFrame(columns, index=pd.RangeIndex(rows.num_rows))


def _is_large(column: pa.ChunkedArray) -> bool:
    bounds = pc.min_max(column).as_py()
    return any(value is not None and abs(value) > _EXACT_FLOAT for value in bounds.values())


def made(kind: str, kwargs: Mapping[str, Any], severity: Severity, description: str = "") -> Any:
    """Return the library's expectation. Raises what the library raises if it does not accept it."""
    library()
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    return ExpectationConfiguration(
        type=kind,
        kwargs={**kwargs},
        severity="critical" if severity is Severity.ERROR else "warning",
        description=description or None,
    ).to_domain_obj()


def problem(rule: Rule) -> str:
    """Return why the library does not accept an expectation, or cannot evaluate it; empty if it can."""
    try:
        expectation = made(rule.kind, rule.arguments, rule.severity)
    except Exception as error:  # any error of a library of validators; its text may be a page
        return f"Great Expectations does not accept {rule.kind} with these kwargs ({type(error).__name__})"
    if rule.by is By.LIBRARY and not _has_pandas_metrics(expectation):
        return f"DuckDB does not measure {rule.kind} with these kwargs, and Great Expectations cannot with pandas"
    return ""


def _has_pandas_metrics(expectation: Any) -> bool:
    """Whether the library computes all metrics that the expectation needs with pandas."""
    import pandas as pd
    from great_expectations.exceptions import MetricProviderError
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.validator.validation_graph import ValidationGraph

    engine = PandasExecutionEngine(batch_data_dict={_BATCH: pd.DataFrame()})
    try:
        needed = expectation.get_validation_dependencies(engine, {"result_format": {"result_format": "COMPLETE"}})
        graph = ValidationGraph(execution_engine=engine)
        for metric in needed.get_metric_configurations():
            graph.build_metric_dependency_graph(metric_configuration=metric)
    except MetricProviderError:
        return False
    except Exception:  # needs rows: what it raises for them pauses the table
        return True
    return True


@contextmanager
def _without_spark_connect() -> Iterator[None]:
    """Hide pyspark's Connect client while Great Expectations is imported.

    The library imports it if available, but does not need it; in a process whose main module has no file (Dagster's run
    workers) that client assumes that it is run as a doctest and ends the process.
    """
    name = "pyspark.sql.connect"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(name, None)


@cache
def library() -> Any:
    """Import the library, and the expectation class of rules that are conditions."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    with _without_spark_connect():
        import great_expectations

        import cdc_core.quality.condition  # noqa: F401  (registers its class)

    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    return great_expectations

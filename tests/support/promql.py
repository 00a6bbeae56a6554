"""Expressions of Prometheus: whether the metrics and labels that they name are exported, and the labels of a result."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

Exported = Mapping[str, frozenset[str]]
"""The labels of each metric."""
_OF_PROMETHEUS = frozenset({"job", "instance"})


def exported(text: str) -> Exported:
    """Metrics by the names that Prometheus stores, with the labels that every series of one has."""
    found: dict[str, list[frozenset[str]]] = {"up": [frozenset()]}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(frozenset(sample.labels))
    return {name: reduce(frozenset.intersection, labels) | _OF_PROMETHEUS for name, labels in found.items()}


def metrics(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return set(_metrics(promql.parse(expression)))


def _metrics(node: Any) -> list[str]:
    if isinstance(node, promql.VectorSelector):
        return [node.name]
    parts = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    return [name for part in [*parts, *getattr(node, "args", ())] if part is not None for name in _metrics(part)]


def labels(expression: str, known: Exported) -> frozenset[str]:
    """The labels of each series of the result. Raises ValueError for an expression that Prometheus refuses.

    And AssertionError for a metric that is not exported, a label that its series do not have, and two sides that never
    have equal labels.
    """
    found = _labels(promql.parse(expression), known)
    assert found is not None, f"{expression}: a number"
    return found


def _labels(node: Any, known: Exported) -> frozenset[str] | None:
    """None: the value is a number."""
    match node:
        case promql.NumberLiteral() | promql.StringLiteral():
            return None
        case promql.VectorSelector():
            assert node.name in known, f"{node.name}: not exported"
            found = _having(known[node.name], [matcher.name for matcher in node.matchers.matchers], node)
        case promql.MatrixSelector():
            return _labels(node.vector_selector, known)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _labels(node.expr, known)
        case promql.Call():
            (found,) = [each for argument in node.args if (each := _labels(argument, known)) is not None]
            assert node.func.name in ("rate", "increase", "histogram_quantile"), f"{node.func.name}: not known here"
            if node.func.name == "histogram_quantile":
                found = _having(found, ["le"], node) - {"le"}
        case promql.AggregateExpr():
            every, named = _labels(node.expr, known) or frozenset(), node.modifier.labels if node.modifier else []
            is_by = node.modifier is None or node.modifier.type == promql.AggModifierType.By
            found = _having(every, named, node) & frozenset(named) if is_by else every - frozenset(named)
        case promql.BinaryExpr():
            return _of_both(node, _labels(node.lhs, known), _labels(node.rhs, known))
        case _:
            raise AssertionError(f"{node}: not known here")
    return found


def _of_both(node: Any, left: frozenset[str] | None, right: frozenset[str] | None) -> frozenset[str] | None:
    if left is None or right is None:
        return left if right is None else right
    matching = None if node.modifier is None else node.modifier.matching
    if matching is None:
        assert left == right, f"{node}: the labels of the sides differ: {sorted(left ^ right)}"
        return left
    assert matching.type == promql.LabelModifierType.Include, f"{node}: ignoring is not known here"
    _having(left & right, matching.labels, node)
    if str(node.op) == "or":
        return left & right
    return left if str(node.op) in ("and", "unless") else frozenset(matching.labels)


def _having(found: frozenset[str], named: list[str], node: Any) -> frozenset[str]:
    assert found.issuperset(named), f"{node}: no series has {sorted(set(named) - found)}"
    return found

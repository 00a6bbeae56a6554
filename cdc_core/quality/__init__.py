"""Rules from the catalogue, checked for each slice before it is merged.

``rules.rules_for`` creates a table's rules, ``evaluate.check`` evaluates them for a slice of change rows and returns
which rows may be merged. Evaluation imports DuckDB and validation imports Great Expectations, so neither is imported
here.
"""

from cdc_core.quality.report import RuleVerdict, Summary
from cdc_core.quality.rules import Rule, Severity, rules_for

__all__ = ["Rule", "RuleVerdict", "Severity", "Summary", "rules_for"]

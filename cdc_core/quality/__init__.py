"""Rules from the catalogue, checked over each slice before it is merged.

``rules.rules_for`` makes a table's rules, ``evaluate.check`` evaluates them over a slice of change rows and says which
rows may pass. Evaluating loads DuckDB and validating loads Great Expectations, so neither is imported here.
"""

from cdc_core.quality.report import RuleOutcome, Summary, TableReport
from cdc_core.quality.rules import Rule, Severity, rules_for

__all__ = ["Rule", "RuleOutcome", "Severity", "Summary", "TableReport", "rules_for"]

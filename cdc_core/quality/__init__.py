"""Rules from the catalogue, checked over each batch before it is merged.

``rules_for`` makes a table's rules, ``check`` evaluates them over a batch of change rows and says which rows may pass.
"""

from cdc_core.quality.evaluate import Checked, check
from cdc_core.quality.report import RuleOutcome, Summary, TableReport
from cdc_core.quality.rules import Rule, Severity, rules_for

__all__ = ["Checked", "Rule", "RuleOutcome", "Severity", "Summary", "TableReport", "check", "rules_for"]

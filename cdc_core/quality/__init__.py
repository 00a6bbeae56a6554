"""Quality rules: what a row must satisfy to enter a lake table, and the reports of judgements.

Rules are derived from the source's catalogue and read from the user's files; each is an expectation of Great
Expectations. They judge Arrow rows in memory, before anything is written, and write nothing themselves.

Settings    ``QualityOptions``, with ``UserRule`` and ``Limits``; ``RecentChanges`` counts the refused ones of the
            latest changes, which the limits concern (``NONE_RECENT``: none yet). ``RuleFiles`` are the user's files,
            and ``read_rule_files`` reads them.
Rules       ``rules_for`` derives a table's rules from its description, ``rules_of_files`` from the files. A ``Rule``
            has a ``Severity``, an ``Origin`` and an evaluator (``By``); ``KEY_UNIQUE`` and ``CONDITION`` are the name
            and the kind of two that are treated differently. ``require_valid`` and ``problem`` report errors in
            a rule. ``ConstraintsSeen`` records since which LSN the source's constraints are known to be in force, as
            long as their ``constraint_marks`` are equal.
Judgements  ``check`` judges one slice's change rows (``Checked``: which rows are refused, and whether the others may
            be merged); ``judge_whole`` judges the rows of a lake table, of which ``columns_read`` are needed. A
            ``RuleVerdict`` is the result of one rule, with ``observed`` and ``expected`` values. ``as_quarantine_rows``
            adds the reasons to refused rows. ``library`` is Great Expectations, loaded and configured.
Reports     ``CheckReport`` and ``RuleResult`` are plain values for the command line and Dagster; ``both`` adds two
            reports. ``write_data_docs`` writes pages; ``make_project`` and ``write_suite`` write a project for Great
            Expectations (``SuiteReport``).

Judging is a pure function of rows and rules: it may be repeated, in any thread and process. A rule that cannot be
evaluated raises NotJudgedError. No report contains a row's values. DuckDB and Great Expectations are loaded by the
names that use them, not by this package.

Not behind this door: where refused rows are stored, and how they are merged later (``cdc_core.lake``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.quality.check_report import CheckReport as CheckReport
    from cdc_core.quality.check_report import RuleResult as RuleResult
    from cdc_core.quality.check_report import both as both
    from cdc_core.quality.constraints import ConstraintsSeen as ConstraintsSeen
    from cdc_core.quality.constraints import constraint_marks as constraint_marks
    from cdc_core.quality.data_docs import write_data_docs as write_data_docs
    from cdc_core.quality.duck import as_quarantine_rows as as_quarantine_rows
    from cdc_core.quality.evaluate import Checked as Checked
    from cdc_core.quality.evaluate import check as check
    from cdc_core.quality.evaluate import expected as expected
    from cdc_core.quality.evaluate import observed as observed
    from cdc_core.quality.evaluate import require_valid as require_valid
    from cdc_core.quality.file_rules import rules_of_files as rules_of_files
    from cdc_core.quality.great_expectations import library as library
    from cdc_core.quality.great_expectations import problem as problem
    from cdc_core.quality.options import NONE_RECENT as NONE_RECENT
    from cdc_core.quality.options import Limits as Limits
    from cdc_core.quality.options import QualityOptions as QualityOptions
    from cdc_core.quality.options import RecentChanges as RecentChanges
    from cdc_core.quality.options import UserRule as UserRule
    from cdc_core.quality.project import SuiteReport as SuiteReport
    from cdc_core.quality.project import make_project as make_project
    from cdc_core.quality.project import write_suite as write_suite
    from cdc_core.quality.report import RuleVerdict as RuleVerdict
    from cdc_core.quality.rule_files import RuleFiles as RuleFiles
    from cdc_core.quality.rule_files import read_rule_files as read_rule_files
    from cdc_core.quality.rules import CONDITION as CONDITION
    from cdc_core.quality.rules import KEY_UNIQUE as KEY_UNIQUE
    from cdc_core.quality.rules import By as By
    from cdc_core.quality.rules import Origin as Origin
    from cdc_core.quality.rules import Rule as Rule
    from cdc_core.quality.rules import Severity as Severity
    from cdc_core.quality.rules import rules_for as rules_for
    from cdc_core.quality.whole_table import columns_read as columns_read
    from cdc_core.quality.whole_table import judge_whole as judge_whole

lazily(
    __name__,
    {
        "By": "rules",
        "CONDITION": "rules",
        "CheckReport": "check_report",
        "Checked": "evaluate",
        "ConstraintsSeen": "constraints",
        "KEY_UNIQUE": "rules",
        "Limits": "options",
        "NONE_RECENT": "options",
        "Origin": "rules",
        "QualityOptions": "options",
        "RecentChanges": "options",
        "Rule": "rules",
        "RuleFiles": "rule_files",
        "RuleResult": "check_report",
        "RuleVerdict": "report",
        "Severity": "rules",
        "SuiteReport": "project",
        "UserRule": "options",
        "as_quarantine_rows": "duck",
        "both": "check_report",
        "check": "evaluate",
        "columns_read": "whole_table",
        "constraint_marks": "constraints",
        "expected": "evaluate",
        "judge_whole": "whole_table",
        "library": "great_expectations",
        "make_project": "project",
        "observed": "evaluate",
        "problem": "great_expectations",
        "read_rule_files": "rule_files",
        "require_valid": "evaluate",
        "rules_for": "rules",
        "rules_of_files": "file_rules",
        "write_data_docs": "data_docs",
        "write_suite": "project",
    },
)

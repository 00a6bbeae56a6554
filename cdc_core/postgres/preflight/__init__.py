"""Checks of the server. One file per check: the query, the verdict as a pure function of its result, the remedy."""

from __future__ import annotations

from cdc_core.postgres.preflight.check import run_checks
from cdc_core.postgres.preflight.finding import Finding, FindingSeverity
from cdc_core.postgres.preflight.script import is_unreached, left_out, script, uncorrected

__all__ = ["Finding", "FindingSeverity", "is_unreached", "left_out", "run_checks", "script", "uncorrected"]

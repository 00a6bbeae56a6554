"""Compares lake tables with their source at one LSN, and repairs rows that differ (docs/reconcile.md)."""

"""Snapshots: which ranges of which tables are read, and when."""

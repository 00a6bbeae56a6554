"""Spark: one session, and plain Python functions run in its tasks."""

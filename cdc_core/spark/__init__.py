"""Spark: one session, and plain Arrow readers run in its tasks."""

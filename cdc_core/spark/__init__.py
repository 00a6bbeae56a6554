"""Spark: one session, and plain Python work run in its tasks."""

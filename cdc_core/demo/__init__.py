"""The demo: a small shop on an embedded PostgreSQL with a workload, captured by the complete pipeline."""

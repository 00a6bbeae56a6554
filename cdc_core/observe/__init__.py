"""External view of a running connector: its options for Dagster and metrics."""

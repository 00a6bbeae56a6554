"""What others see of a connector while it runs: its options for Dagster and metrics."""

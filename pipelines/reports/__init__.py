"""Reports of the engine as Dagster shows them: metadata, totals, freshness."""

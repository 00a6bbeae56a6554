"""A connector file as Dagster sees it: its site, known tables, asset keys and partitions."""

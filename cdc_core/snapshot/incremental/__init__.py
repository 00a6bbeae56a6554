"""Incremental snapshots: a table's rows in chunks by key, each inserted into the stream at a known position."""

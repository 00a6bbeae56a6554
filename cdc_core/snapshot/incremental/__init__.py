"""Incremental snapshots: a table's rows in chunks by key, each put into the stream at a known place of it."""

"""Rows of tables by queries: whole tables under an exported snapshot, and chunks by key."""

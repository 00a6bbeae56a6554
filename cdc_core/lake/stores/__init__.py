"""wal2lake's own Delta tables: the state of each captured table, stored with its rows."""

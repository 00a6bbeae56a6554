"""The Delta tables of wal2lake's own: what it knows of each captured table, stored beside the rows."""

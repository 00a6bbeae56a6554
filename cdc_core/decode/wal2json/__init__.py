"""wal2json: JSON, one message a row (format 2, and format 1 in chunks)."""

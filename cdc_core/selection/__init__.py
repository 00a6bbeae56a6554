"""Which tables, columns, operations and messages are captured; masks, truncation, hashes."""

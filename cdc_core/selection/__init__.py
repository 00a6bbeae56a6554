"""Selection of captured tables, columns, operations and messages; masks, truncation, hashes."""

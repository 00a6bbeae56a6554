"""The system catalogue: tables, columns, types, keys, partitions and fingerprints."""

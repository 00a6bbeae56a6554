"""The order of operations: reading, batches, snapshots, rounds."""

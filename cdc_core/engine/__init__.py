"""When: reading, batches, the order of steps, snapshots, rounds."""

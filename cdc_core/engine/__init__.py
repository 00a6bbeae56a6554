"""Control flow: reading a slot, rounds, snapshots that signals request, records."""

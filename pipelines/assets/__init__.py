"""The assets of a connector: source tables, snapshot, changes and lake tables."""

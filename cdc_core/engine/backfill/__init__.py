"""Snapshots that signals request while the stream continues."""

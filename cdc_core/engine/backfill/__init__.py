"""Snapshots that signals request while the stream goes on."""

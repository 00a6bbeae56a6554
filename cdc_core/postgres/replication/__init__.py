"""Logical replication: publication, replica identities, slot, and the stream itself."""

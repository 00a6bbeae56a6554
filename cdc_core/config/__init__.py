"""Reads, checks and explains the connector file."""

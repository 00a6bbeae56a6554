"""Reads lake tables that are consistent with each other, without a server, Java or a connector file."""

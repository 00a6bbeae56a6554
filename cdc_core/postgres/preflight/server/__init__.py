"""Checks of the server's version, settings and slot."""

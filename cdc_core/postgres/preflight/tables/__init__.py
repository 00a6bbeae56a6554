"""Checks of the captured tables, of their publication and of the privileges on them."""

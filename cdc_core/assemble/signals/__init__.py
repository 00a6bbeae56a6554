"""Signals of a connector: where they are received, and what processes them."""

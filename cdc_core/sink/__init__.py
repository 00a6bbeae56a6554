"""Destinations of events: the lake, or a sink that discards them."""

"""The streaming run, and the sinks that it can feed."""

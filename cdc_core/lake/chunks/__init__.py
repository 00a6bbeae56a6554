"""Rows of chunks, read while the stream continues, in one table: which may be written, and their commit."""

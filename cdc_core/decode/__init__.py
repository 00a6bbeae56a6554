"""Vectorized decoding of the server's data: replication messages and COPY text to text columns."""

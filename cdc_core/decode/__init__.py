"""What the server sends, taken apart in vectors: replication messages and COPY text become text columns."""

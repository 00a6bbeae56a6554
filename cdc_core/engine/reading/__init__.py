"""From the slot to micro-batches: messages are read, sorted by table and spooled to local files."""

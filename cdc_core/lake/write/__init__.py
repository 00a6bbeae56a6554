"""Which engine writes a lake table, and with what."""

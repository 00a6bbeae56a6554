"""The types of the two signals that the connector writes around each chunk that it reads: the chunk's watermarks."""

WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"

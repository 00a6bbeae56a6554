"""Quality checks of change rows before they are merged."""

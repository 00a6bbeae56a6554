"""What keeps the number of files and log entries of a table bounded."""

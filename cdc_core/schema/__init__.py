"""What a table is, what its types are, and how things are called."""

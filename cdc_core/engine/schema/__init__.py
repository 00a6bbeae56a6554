"""The schema version that each lake table has, how it follows its source, and what pauses it or has it read again."""

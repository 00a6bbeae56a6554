"""The schemas of lake tables and changelogs, and how rows of one schema version become rows of the next."""

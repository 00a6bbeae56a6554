"""Change rows reduced to the rows to apply: by key, by version, or as a multiset."""

"""Change rows reduced to what is to be applied: by key, by version, or as a multiset."""

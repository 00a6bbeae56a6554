"""Arrow rows of changes: the captured columns with the lake's types, keys, and the images of a row."""

"""One slice of changes applied to one lake table by copy-on-write, or staged for Spark."""

"""Where the rows with given keys are: an index of each data file's keys, on the local disk of the worker."""

"""A local copy of the objects that the operator reads: one list and one watch for each kind."""

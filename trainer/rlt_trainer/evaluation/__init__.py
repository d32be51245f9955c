"""Statistics of the responses to a validation set: estimates, intervals and differences, in numpy."""

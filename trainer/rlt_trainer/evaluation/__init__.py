"""Statistics of the responses to a suite of prompts: estimates, intervals and differences, in numpy."""

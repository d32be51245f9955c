"""Comparisons and summaries of runs (rlt.runs.run). No I/O."""

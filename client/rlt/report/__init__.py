"""Comparisons and reports of runs (rlt.runs), as text, Markdown and HTML. No I/O."""

"""Comparisons and reports of runs (rlt.runs.run), as text, Markdown and HTML. No I/O."""

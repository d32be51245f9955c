"""The preflight checks of a Ray cluster. Each pod runs them in the job's own image.

It is mounted into images without rlt: it needs only Python 3.8, the standard library and Ray. It uses torch if the
image has it.
"""

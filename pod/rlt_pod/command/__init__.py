"""The program that runs a job's command and reads its progress from its output.

It is mounted into images without rlt: it needs only Python 3.8 and the standard library.
"""

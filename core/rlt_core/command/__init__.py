"""The program that runs a job's command and follows what it prints.

It is mounted into images that are not rlt's own: Python 3.8 and its standard library are all that it asks for.
"""

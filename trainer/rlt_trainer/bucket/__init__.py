"""The objects of a run in a bucket of S3 or of a server with the same API."""

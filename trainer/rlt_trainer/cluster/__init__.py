"""The Ray cluster: membership, worker pods, and the worker processes in them."""

"""The driver process: the training loop and what it alone does."""

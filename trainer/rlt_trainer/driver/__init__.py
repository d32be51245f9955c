"""The driver process: the training loop and the code that runs only in the driver."""

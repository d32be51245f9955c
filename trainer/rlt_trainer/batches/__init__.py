"""The data that the driver and the workers exchange."""

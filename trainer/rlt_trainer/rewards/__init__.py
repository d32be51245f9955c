"""What scores a response. Empty, so that a sandbox process starts without torch."""

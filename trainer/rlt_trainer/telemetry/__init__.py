"""What a run says of itself: its directory, its HTTP server."""

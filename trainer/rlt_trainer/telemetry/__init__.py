"""What a run says of itself: its directory, its console line, its HTTP server."""

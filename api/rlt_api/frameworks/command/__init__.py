"""The rules of a user's command."""

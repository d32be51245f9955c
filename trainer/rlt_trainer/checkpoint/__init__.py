"""Saving, finding and exporting what was learned."""

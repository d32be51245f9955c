"""Environments and multi-turn conversations with them."""

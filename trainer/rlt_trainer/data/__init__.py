"""Data sets, prompts, tokenizers and seeded models."""

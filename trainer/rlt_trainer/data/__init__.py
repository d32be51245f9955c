"""Where models, tokenizers and prompts come from."""

"""The publication of an exported model: to a repository on the Hugging Face hub, or to a bucket."""

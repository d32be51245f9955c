"""The publication of an exported model: to a repository on the Hugging Face hub, a bucket or an image registry."""

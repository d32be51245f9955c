"""Checkpoints: save, resume, retention, and export of the trained model."""

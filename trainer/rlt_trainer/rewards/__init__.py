"""Rewards: scoring of responses. This file imports nothing, so that a sandbox process starts without torch."""

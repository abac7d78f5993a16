"""Checkpoints: where they come from, what is in them, and the cache on this machine."""

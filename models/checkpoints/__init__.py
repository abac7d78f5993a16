"""Checkpoints: sources, checks, and the cache on this machine."""

"""Checks of this machine and of a checkpoint."""

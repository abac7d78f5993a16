"""Fusion: one run from several."""

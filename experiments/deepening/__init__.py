"""Depth under a budget, on real collections."""

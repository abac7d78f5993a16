"""Readers of the collections that benchmarks and experiments use."""

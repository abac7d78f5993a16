"""Compares engines that score the same texts, for checkpoints of many shapes."""

"""Measures of runs against qrels, and tests of their differences."""

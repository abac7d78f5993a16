"""What a run stored, and what follows from it without a model: measures, curves, rank changes, truncated docs."""

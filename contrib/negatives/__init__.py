"""Hard negatives from the scores of a run, for training."""

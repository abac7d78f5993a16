"""Models that transformers itself computes: slower than the encoder here, for families that it does not have."""

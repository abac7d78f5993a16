"""Probabilities of relevance from scores, by the judgments of a run."""

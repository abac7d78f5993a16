"""Effectiveness against the number of training pairs (figure 1 of the monoBERT paper)."""

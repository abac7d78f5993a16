"""Stages that score a doc by the vectors of an encoder: multi-vector, dense and sparse."""

"""Beam wiring, one family of PTransforms a file."""

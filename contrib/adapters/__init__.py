"""Rerankers as sentence-transformers, PyTerrier and mteb take them."""

from contrib.adapters.cross_encoder import CrossEncoder

__all__ = ["CrossEncoder"]

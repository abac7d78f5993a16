"""Rerankers as PyTerrier and mteb take them; sentence-transformers takes a `Reranker` as it is."""

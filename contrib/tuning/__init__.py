"""BM25, measured at several values of k1 and b."""

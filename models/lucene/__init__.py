"""BM25 with Lucene. The only part of beamrank that starts Java."""

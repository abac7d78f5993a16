"""The rankers: BM25, monoBERT, duoBERT, and the engine that scores with them. Never Beam."""

"""Rarer formats of collections: SMART, rank_llm's JSON, MTEB's first re-ranking files."""

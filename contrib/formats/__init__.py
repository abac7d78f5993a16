"""Formats of certain collections: MS MARCO's top1000, SMART, rank_llm's JSON, MTEB's first
re-ranking files.
"""

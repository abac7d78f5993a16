"""The files that users have: topics, qrels, runs, corpora."""

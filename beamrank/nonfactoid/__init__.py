"""The collections of Mass et al. 2019: from the released files to corpus, topics, qrels and candidates."""

"""Language models that answer a prompt with a word: monoT5, duoT5, Qwen3-Reranker and
mxbai-rerank-v2.
"""

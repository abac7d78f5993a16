"""Language models that answer a prompt with a word: monoT5, duoT5, Qwen3-Reranker,
mxbai-rerank-v2 and bge-reranker-v2-gemma.
"""

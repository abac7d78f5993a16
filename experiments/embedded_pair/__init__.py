"""How the embedded pair was made from a bi-encoder and three collections: `python -m
experiments.embedded_pair`.
"""
